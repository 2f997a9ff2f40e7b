"""The page's data: one object from all stored reports, which the page only draws.

Promise: a pure function of the reports; every figure names the runs that it comes from, every run its file and line.
What an older report does not have is null, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from oncebench.audit.anomalies import CATALOGUE, TERMS, terms_of
from oncebench.report.comparisons.paired import Setting, differing
from oncebench.report.comparisons.sweep_selection import setting_text
from oncebench.report.configuration import configuration_of, configurations_of
from oncebench.report.measures.metrics import BY_NAME, field, figure
from oncebench.report.outcome import ORDER, is_healthy, outcome_of
from oncebench.report.schema import Report
from oncebench.report.titles import title
from oncebench.site import about, costs, curves, promises, recovery, timelines
from oncebench.site.pack import Texts, columns, numbers, short
from oncebench.site.stored import Stored

# Raised when the page's scripts could misread older data.
FORM = 2
# What the list of all runs shows of each.
_OF_RUNS = ("p50_ms", "p99_ms", "cpu_s", "recovery_s")
_PER_S = field("throughput", "events_per_s")


def data_of(stored: Sequence[Stored]) -> dict[str, Any]:
    """All that the page shows."""
    reports = [each.report for each in stored]
    texts = Texts()
    on_purpose = configurations_of(reports)
    ways = list(on_purpose)
    matrix = promises.matrix_of(reports)
    words = promises.words_of(matrix)
    return {
        "form": FORM,
        "about": about.as_json(reports, matrix, on_purpose),
        "words": list(ORDER),
        "codes": _codes(reports),
        "terms": TERMS,
        "ways": [[*way, on_purpose[way], words.get(way)] for way in ways],
        "matrix": promises.as_json(matrix, ways, texts),
        "costs": costs.as_json(reports, ways),
        "curves": curves.as_json(reports, ways),
        "timelines": timelines.as_json(reports, ways, texts),
        "returns": recovery.as_json(reports, ways),
        "runs": _runs(stored, ways, texts),
        "text": texts.as_json(),  # last: it has grown until here
    }


def _codes(reports: Sequence[Report]) -> dict[str, Any]:
    """Each code that some run shows: what it means, its exact rule, and which words of that have to be explained."""
    shown = {code for report in reports for code in report["anomalies"]}
    return {
        code.name: {"means": code.means, "rule": code.rule, "terms": terms_of(code.rule)}
        for code in CATALOGUE.values()
        if code.name in shown
    }


def as_script(data: Any) -> str:
    """The data as a script that sets one global. Nothing in it can end a script, or be taken for markup.

    Raises:
        ValueError: a figure is no number.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f"window.ONCEBENCH={text};\n"


def _runs(stored: Sequence[Stored], ways: Sequence[Any], texts: Texts) -> dict[str, Any]:
    files = numbers(each.file for each in stored)
    names = ("id", "way", "done", "verdict", "codes", "why", "seed", "lost", "doubled", "per_s", *_OF_RUNS, "file",
             "line", "command")  # fmt: skip
    rows = []
    swept = differing({Setting.of(each.report) for each in stored if is_healthy(each.report)})
    for each in stored:
        report = each.report
        told = figure(report, BY_NAME["s_per_million"]) is not None
        codes = report["broken_by"] if "broken_by" in report else report["anomalies"]
        why = [*report["reasons"], *(["it was interrupted"] if report.get("interrupted") else [])]
        rows.append((
            report.get("run", "-"), ways.index(configuration_of(report)), texts.add(_done(report, swept)),
            ORDER.index(outcome_of(report)), texts.add(" ".join(sorted(codes))), texts.add("; ".join(why)),
            report["seed"], report["rows"]["lost"], report["rows"]["duplicated"],
            short(_PER_S(report)) if told else None,
            *(short(figure(report, BY_NAME[name])) for name in _OF_RUNS),
            files[each.file], each.line, texts.add(report["reproduce"]),
        ))  # fmt: skip
    return {
        "files": list(files),
        "verdicts": list(ORDER),
        "headings": [BY_NAME[name].heading for name in _OF_RUNS],
        "figures": list(_OF_RUNS),
        **columns(names, rows),
    }


def _done(report: Report, swept: Sequence[str]) -> str:
    """What was done to a run; of a healthy one in which setting, where there are several."""
    if not is_healthy(report):
        return title(report)
    tried = "a rate tried" if report.get("probe") else ""
    others = [name for name in swept if name != "open_sessions"]  # which the title tells
    return ", ".join(filter(None, (title(report) or promises.HEALTHY, tried, setting_text(Setting.of(report), others))))
