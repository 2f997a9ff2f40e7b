"""Describes the result of a run in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.audit.anomalies import CATALOGUE
from oncebench.certify.kept import STRENGTH, Outcome

# The fields of an example that the text has, in this order: field -> the words before its value.
_WORDS: Mapping[str, str] = {
    "batch": "batch", "lost": "rows lost:", "id": "row", "session_key": "session", "missing": "without its rows",
    "kind": "kind:",
}  # fmt: skip

# Anomalies that a user's reader may bring about, and what to check first.
_HINTS: Mapping[str, str] = {
    "INCO": "check that each call of the reader returns the rows of one moment. A call that reads page by page, while "
    "rows are written, may show rows that are in no other call.",
}


def result(outcome: Outcome) -> str:
    """Returns the result of a run in one line.

    The line names the guarantees that the run broke. Otherwise it reports that the run kept all of them, or why the run
    has no answer.
    """
    if outcome.undecided:
        return not_tested(outcome)
    broken = [guarantee for guarantee in STRENGTH if outcome.broken(guarantee)]
    if not broken:
        rows = outcome.report["rows"]
        died = ended_by_itself(outcome)
        return f"kept: {rows['visible']} of {rows['expected']} rows, each once{died and f'; {died}'}"
    parts = [f"breaks {', '.join(broken)}: {findings(outcome)}", *far_from_failures(outcome), not_tested(outcome)]
    return "; ".join(filter(None, parts))


def not_tested(outcome: Outcome) -> str:
    """Returns the guarantees for which the run has no answer, and why.

    The text is empty if the run has an answer for each guarantee.
    """
    if outcome.undecided:
        return f"not tested: {outcome.undecided}"
    asked = [guarantee for guarantee in STRENGTH if outcome.unanswered(guarantee)]
    return f"not tested for {', '.join(asked)}: {outcome.unanswered(asked[0])}" if asked else ""


def far_from_failures(outcome: Outcome) -> list[str]:
    """Returns why weaker guarantees are broken too: no failure touched some of the rows.

    The list has one text per guarantee and anomaly. Such a guarantee allows the anomaly only for rows that a failure
    touched.
    """
    return [
        f"no failure touched {rows} of the rows of {code}, so {guarantee} is broken too"
        for guarantee in STRENGTH
        for code, rows in outcome.untouched(guarantee).items()
    ]


def ended_by_itself(outcome: Outcome) -> str:
    """Returns how often the job ended without a fault, and the last reason.

    The text is empty if the job never did. Such an end breaks no guarantee if a restart helps. But a user's job would
    need that restart too.
    """
    each = outcome.report.get("deaths", {}).get("each_unasked", [])
    if not each:
        return ""
    return f"the job ended by itself {len(each)} time{'s' if len(each) > 1 else ''}: {each[-1]['why']}"


def findings(outcome: Outcome, guarantee: str = STRENGTH[0]) -> str:
    """Returns the anomalies of the run that the guarantee forbids, as one line."""
    codes = outcome.broken(guarantee)
    return "; ".join(
        f"{count} {CATALOGUE[code].unit} ({code}: {CATALOGUE[code].means})" for code, count in codes.items()
    )


def examples(outcome: Outcome, guarantee: str = STRENGTH[0]) -> list[str]:
    """Returns a line per forbidden anomaly of the run, with an example, and then the hints.

    An anomaly has no line if the report has no example of it.
    """
    codes = outcome.broken(guarantee)
    found = {code: example(outcome, code) for code in codes}
    lines = [f"{code}, for example: {text}" for code, text in found.items() if text]
    return [*lines, *(f"{code}: {hint}" for code, hint in _HINTS.items() if code in codes)]


def example(outcome: Outcome, code: str) -> str:
    """Returns one example of an anomaly, in words; empty if the report has none.

    The text has no positions of rows in the output, because the rows of a user's reader have none.
    """
    examples = outcome.report.get("examples", {}).get(code, ())
    return _words(examples[0]) if examples else ""


def _words(found: Mapping[str, Any]) -> str:
    parts = [f"{word} {found[name]}" for name, word in _WORDS.items() if name in found]
    if len(found.get("rows", ())) > 1:
        parts.append(f"visible {len(found['rows'])} times")
    if "first" in found:
        parts.append(f"first of them: {_words(found['first'])}")
    if found.get("input"):
        parts.append(f"made from the input at partition {found['input'][0][0]}, offset {found['input'][0][1]}")
    return ", ".join(parts)


def name_of(given: Mapping[str, Any]) -> str:
    """Returns the sink's name in texts: `module:function`, or the name of Spark's format."""
    return str(given["write"] or f"Spark's format {given['format']}")
