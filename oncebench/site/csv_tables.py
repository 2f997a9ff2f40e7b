"""The CSV tables of a results folder: runs, cells of the matrix, and costs.

Promise: the same figures as on the page, from the same functions, as plain numbers. A field is empty where the page
has `-`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from oncebench.report.comparisons.paired import Difference, Setting, variants_in
from oncebench.report.configuration import configuration_of, configurations_of
from oncebench.report.measures.metrics import METRICS, figure
from oncebench.report.outcome import broken_by, outcome_of
from oncebench.report.schema import Report
from oncebench.report.titles import title
from oncebench.site.costs import absolute, compared_to_baseline, labels, settings_of
from oncebench.site.faults.matrix import codes_of, families_of, matrix_of, worst
from oncebench.site.stored import Stored

_CONFIGURATION = ("sink", "guarantee", "variant")


def runs(stored: Sequence[Stored]) -> str:
    """A line for each run: its origin, configuration, verdict and all its metrics."""
    head = (
        "file",
        "line",
        "run",
        *_CONFIGURATION,
        "faults",
        "setting",
        "verdict",
        "codes",
        "seed",
        *(each.name for each in METRICS),
    )
    reports = [each.report for each in stored]
    healthy = labels(setting for setting, _ in settings_of(reports))  # the same labels as on the page
    called = {**labels({Setting.of(report) for report in reports}), **healthy}
    return _csv(head, (_run(each, called[Setting.of(each.report)]) for each in stored))


def cells(reports: Sequence[Report]) -> str:
    """A line for each cell of the correctness matrix: the worst of its runs, and their number."""
    matrix = matrix_of(reports)
    configurations, columns = (
        list(configurations_of(reports)),
        [fault for faults in families_of(matrix).values() for fault in faults],
    )
    head = (*_CONFIGURATION, "family", "fault", "verdict", "codes", "lost", "duplicated", "runs", "reproduce")
    places = sorted(matrix, key=lambda place: (configurations.index(place.configuration), columns.index(place.fault)))
    return _csv(
        head,
        (
            (*place.configuration, place.family, place.fault, worst(entries).cell.outcome, codes_of(entries),
             sum(entry.cell.lost for entry in entries), sum(entry.cell.duplicated for entry in entries), len(entries),
             worst(entries).cell.reproduce)
            for place in places
            for entries in [matrix[place]]
        ),
    )  # fmt: skip


def costs(reports: Sequence[Report]) -> str:
    """A line for each healthy configuration and metric: median, ratio, and their intervals."""
    head = (*_CONFIGURATION, "setting", "metric", "rounds", "median", "low", "high", "ratio", "ratio low", "ratio high")
    return _csv(head, _costs(reports))


def _costs(reports: Sequence[Report]) -> Iterator[Sequence[Any]]:
    settings = settings_of(reports)
    called = labels(setting for setting, _ in settings)
    for setting, rounds in settings:
        for variant in variants_in(rounds):
            for metric in METRICS:
                found = absolute(rounds, metric, variant)
                if found is not None:
                    times = None if metric.promised else compared_to_baseline(rounds, metric, variant)[0]
                    yield (setting.sink, *variant, called[setting], metric.name, len(found.rounds),
                           *_parts(found), *_parts(times))  # fmt: skip


def _run(each: Stored, setting: str) -> tuple[Any, ...]:
    report = each.report
    return (each.file, each.line, report.get("run"), *configuration_of(report), title(report) or "none",
            setting, outcome_of(report), " ".join(broken_by(report)), report["seed"],
            *(figure(report, metric) for metric in METRICS))  # fmt: skip


def _parts(found: Difference | None) -> tuple[float | None, ...]:
    """Median, low and high; the last two are None where rounds are too few."""
    if found is None:
        return (None, None, None)
    return (found.median, found.low, found.high) if found.has_interval else (found.median, None, None)


def _csv(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()
