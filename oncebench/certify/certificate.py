"""Writes the certificate: one Markdown page about a sink.

Promise: the page needs no other file, and depends on the arguments alone. Each sentence is a fact of a run. Each
scenario that broke a guarantee has the command that runs it again. Texts of errors have a mask in place of secrets.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncebench.certify.evidence import ended_by_itself, examples, far_from_failures, findings, name_of, not_tested
from oncebench.certify.kept import NONE, STRENGTH, Outcome, proven, strongest, tested
from oncebench.certify.request import Request
from oncebench.certify.scenarios import chosen
from oncebench.redaction import redacted

_MEANS = {
    "exactly-once": "A reader sees each row once, also after the faults below.",
    "at-least-once": "No row is lost. After a fault, a reader may see rows more than once.",
    "at-most-once": "A reader sees no row twice. After a fault, rows may be missing.",
    NONE: "Rows are missing, duplicated or wrong in a way that no guarantee allows.",
}


def certificate(request: Request, outcomes: Sequence[Outcome], made: str, prices: Sequence[str] = ()) -> str:
    """Returns the page.

    Args:
        outcomes: of the scenarios that ran, in the order of the table.
        made: the last line: the date and the versions.
        prices: one line per figure, see `oncebench.certify.price`.
    """
    given = request.given
    kept = strongest(outcomes)
    left = [
        each.name for each in chosen(bool(given["write"])) if each not in [outcome.scenario for outcome in outcomes]
    ]
    lines = [f"# {name_of(given)} {answer(outcomes, bool(left))}", ""]
    if tested(outcomes):
        lines += [_MEANS[kept], ""]
    if not proven(outcomes):
        lines += ["Some scenarios have no answer, so this is not proven. The table has them as `not tested`.", ""]
    if left and kept == NONE:
        lines += ["Every guarantee is broken, so more scenarios cannot change the answer. "
                  f"These were not run: {', '.join(left)}.", ""]  # fmt: skip
    elif left:
        lines += [f"These scenarios were not run, so this is not proven: {', '.join(left)}.", ""]
    lines += ["| scenario | what happens | " + " | ".join(STRENGTH) + " |", "|---|---|" + "---|" * len(STRENGTH)]
    lines += [_row(outcome) for outcome in outcomes]
    broken = [outcome for outcome in outcomes if outcome.broken(STRENGTH[0])]
    if broken:
        lines += ["", "## Evidence"]
    for outcome in broken:
        lines += ["", f"### {outcome.scenario.name}", "", *_evidence(request, outcome)]
    died = [outcome for outcome in outcomes if ended_by_itself(outcome)]
    if died:
        lines += ["", "## Ends without a fault", ""]
        lines += ["No fault caused these ends of the job. Where the table has `kept`, a restart was enough:", ""]
        lines += [f"- {each.scenario.name}: {redacted(ended_by_itself(each))}" for each in died]
    untested = [(each.scenario.name, not_tested(each).removeprefix("not tested: ")) for each in outcomes]
    if any(why for _, why in untested):
        lines += ["", "## Not tested", "", *(f"- {name}: {redacted(why)}" for name, why in untested if why)]
    if prices:
        lines += ["", f"## Price compared with {request.beside}", ""]
        lines += ["Medians of both in runs without faults, and the median ratio with its 95 % interval:", ""]
        lines += [f"- {redacted(price)}" for price in prices]
    lines += ["", "## How it was tested", "", *_method(request, outcomes), "", made]
    return "\n".join(lines) + "\n"


def answer(outcomes: Sequence[Outcome], is_part: bool) -> str:
    """Returns the answer for the title, which a reader may quote without the page.

    Args:
        is_part: whether there are scenarios that were not run.
    """
    if not tested(outcomes):
        return "was not tested: no scenario has an answer"
    kept = strongest(outcomes)
    if kept == NONE:  # more scenarios cannot change it
        return "keeps no guarantee"
    where = "keeps in the scenarios that ran:" if is_part else "keeps"
    return f"{where} {kept}{'' if proven(outcomes) else ' (not proven)'}"


def _row(outcome: Outcome) -> str:
    verdicts = [
        "not tested" if outcome.unanswered(each) else "broken" if outcome.broken(each) else "kept" for each in STRENGTH
    ]
    return f"| {outcome.scenario.name} | {outcome.scenario.description} | " + " | ".join(verdicts) + " |"


def _evidence(request: Request, outcome: Outcome) -> list[str]:
    rows = outcome.report["rows"]
    lines = [f"Found: {findings(outcome)}. Expected: {rows['expected']} rows, each once.", ""]
    lines += [f"- {redacted(line)}" for line in (*examples(outcome), *far_from_failures(outcome))]
    for fault in outcome.report["faults"]:
        if fault["hit"]:
            where = "" if fault["batch"] is None else f" in batch {fault['batch']}"
            lines += [f"- fault: {fault['fault']}{where}"]
    return [*lines, "", "Run this scenario again:", "", f"    {request.command(outcome.scenario)}"]


def _method(request: Request, outcomes: Sequence[Outcome]) -> list[str]:
    expected = sum(outcome.report["rows"]["expected"] for outcome in outcomes if outcome.report)
    count = f"{len(outcomes)} scenario{'' if len(outcomes) == 1 else 's'}"
    return [
        "A real Spark job read from a real Kafka and wrote to the sink. Real signals killed and stopped the job. "
        f"{request.given['read']} returned the rows that a reader sees. Two auditors computed the expected rows from "
        f"the input, and compared both: {expected} rows in {count}. A fault acts in one batch of a run, "
        "so a race at another moment may stay unseen.",
        "",
        "This command runs all scenarios again:",
        "",
        f"    {request.command()}",
    ]
