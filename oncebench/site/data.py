"""The page's data: one object made from all stored reports, which the page only draws.

Promise: a pure function of the reports. Every figure names its runs, and every run its file and line. A field that an
older report lacks is null, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from oncebench.audit.anomalies import CATALOGUE, TERMS, terms_of
from oncebench.report.comparisons.paired import MACHINE, Setting, differing
from oncebench.report.comparisons.sweep_selection import setting_text
from oncebench.report.configuration import configuration_of, configurations_of
from oncebench.report.measures.generators import processes_text
from oncebench.report.measures.metrics import BY_NAME, THROUGHPUT, figure
from oncebench.report.outcome import ORDER, broken_by, is_healthy, outcome_of
from oncebench.report.schema import Report
from oncebench.report.tables import commits
from oncebench.report.tables.batch_series import BatchSeries
from oncebench.report.titles import title
from oncebench.site import about, costs, curves, engines, flat_out
from oncebench.site.answer import headline
from oncebench.site.answer.sentences import of_engines, sentences, subject
from oncebench.site.faults import matrix, recovery, timelines
from oncebench.site.pack import Texts, columns, numbers, short
from oncebench.site.stored import Stored

# Version of the data. It grows when the page's scripts could misread older data.
FORM = 9
# Metrics in the list of all runs.
_OF_RUNS = ("p50_ms", "p99_ms", "cpu_s", "recovery_s")


def data_of(
    stored: Sequence[Stored],
    others: Sequence[Stored] = (),
    series: Sequence[BatchSeries] = (),
    history: Sequence[commits.Commit] = (),
) -> dict[str, Any]:
    """Everything that the page draws.

    Args:
        stored: runs of the suite.
        others: series of several engines.
        series: of `oncebench batches`.
        history: the speed of earlier commits.
    """
    reports = [each.report for each in stored]
    texts = Texts()
    on_purpose = configurations_of(reports)
    configurations = list(on_purpose)
    cells = matrix.matrix_of(reports)
    outcomes = matrix.outcomes_of(cells)
    answers = headline.answers_of(reports, cells, on_purpose, series)
    peers = [each.report for each in others]
    return {
        "form": FORM,
        "headline": headline.as_json(answers, sentences(answers), reports, configurations, series)
        | {"subject": subject(reports, peers), "engines": of_engines(peers)},
        "about": about.as_json(reports, cells, on_purpose),
        "outcomes": list(ORDER),
        "codes": _codes(reports),
        "terms": TERMS,
        "configurations": [
            {"sink": each[0], "guarantee": each[1], "variant": each[2],
             "broken_on_purpose": on_purpose[each], "outcome": outcomes.get(each)}
            for each in configurations
        ],
        "matrix": matrix.as_json(cells, configurations, texts),
        "costs": costs.as_json(reports, configurations),
        "curves": curves.as_json(reports, configurations),
        "timelines": timelines.as_json(reports, configurations, texts),
        "flat_out": flat_out.as_json(series),
        "engines": engines.as_json(others),
        "commits": commits.as_json(history),
        "recovery": recovery.as_json(reports, configurations),
        "runs": _runs(stored, configurations, texts),
        "text": texts.as_json(),  # last, because every part before it adds texts
    }  # fmt: skip


def _codes(reports: Sequence[Report]) -> dict[str, Any]:
    """The anomaly codes of all runs: meaning, exact rule, and the rule's terms to explain."""
    present = {code for report in reports for code in report["anomalies"]}
    return {
        code.name: {"means": code.means, "rule": code.rule, "terms": terms_of(code.rule)}
        for code in CATALOGUE.values()
        if code.name in present
    }


def as_script(data: Any) -> str:
    """The data as a script that sets one global.

    No text in it can end the script or become markup.

    Raises:
        ValueError: a figure is not a finite number.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f"window.ONCEBENCH={text};\n"


def _runs(stored: Sequence[Stored], configurations: Sequence[Any], texts: Texts) -> dict[str, Any]:
    files = numbers(each.file for each in stored)
    names = ("id", "configuration", "test", "outcome", "codes", "reasons", "seed", "lost", "duplicated",
             "events_per_s", *_OF_RUNS, "file", "line", "command")  # fmt: skip
    rows = []
    differing_fields = differing({Setting.of(each.report) for each in stored if is_healthy(each.report)})
    for each in stored:
        report = each.report
        # Only a flat-out load measures the throughput. At a rate, events/s is that rate.
        measures_throughput = figure(report, BY_NAME["s_per_million"]) is not None
        reasons = [*report["reasons"], *(["the run was interrupted"] if report.get("interrupted") else [])]
        rows.append((
            report.get("run", "-"), configurations.index(configuration_of(report)),
            texts.add(_test(report, differing_fields)),
            ORDER.index(outcome_of(report)), texts.add(" ".join(broken_by(report))), texts.add("; ".join(reasons)),
            report["seed"], report["rows"]["lost"], report["rows"]["duplicated"],
            short(THROUGHPUT(report)) if measures_throughput else None,
            *(short(figure(report, BY_NAME[name])) for name in _OF_RUNS),
            files[each.file], each.line, texts.add(report["reproduce"]),
        ))  # fmt: skip
    return {
        "files": list(files),
        "outcomes": list(ORDER),
        "headings": [BY_NAME[name].heading for name in _OF_RUNS],
        "figures": list(_OF_RUNS),
        **columns(names, rows),
    }


def _test(report: Report, differing_fields: Sequence[str]) -> str:
    """The faults of a run; for a healthy run the fields of its setting that differ between runs.

    The machine is left out here: it is the same for most runs, and tables/runs.csv has it.
    """
    processes = processes_text(report)
    if not is_healthy(report):
        return ", ".join(filter(None, (title(report), processes)))
    probe = "probe of a rate" if report.get("probe") else ""
    # The title has the open sessions.
    fields = [name for name in differing_fields if name not in ("open_sessions", "generators", "observers", MACHINE)]
    setting = setting_text(Setting.of(report), fields)
    return ", ".join(filter(None, (title(report) or matrix.HEALTHY, probe, processes, setting)))
