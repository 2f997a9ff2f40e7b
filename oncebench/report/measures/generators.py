"""How punctual the generators of a run were, together and each by itself.

Promise: pure functions of a record or a report. Lateness over several generators counts every event of the run once:
percentiles of the parts could not be added up. Which events were sent is counted in the ledgers, by the rules of
`oncebench.record.Ledger`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loadgen.share import Share
from loadgen.status import lateness
from oncebench.record import Ledger, Record
from oncebench.report.schema import Report

_SUMMARY = ("lateness_ms", "events_per_s", "queue_full_s")
# A late event waited at most as long as the queue was full. Half of that leaves room for what is late anyway.
_EXPLAINED = 0.5


class Late(NamedTuple):
    """The process that kept its rate worst.

    Attributes:
        name: `the generator`, or its number if there are several.
        p99_ms: its 99th percentile of lateness.
        waited: whether it waited for Kafka's acknowledgements, with a full queue. Then the generator is not the cause.
    """

    name: str
    p99_ms: float
    waited: bool


def generator_section(record: Record) -> dict[str, Any]:
    """The section of a report.

    `sent_share` is the share of planned events that were sent and did not fail. `failed` counts the events for which
    Kafka's client reported an error, and `unknown` those without an answer.

    With several generators, `processes` has the same figures of each, in the order of their numbers. `slowest` is the
    number (from 1) of the one with the largest lateness.
    """
    generators, whole = len(record.load_status), record.ledger
    if generators < 2:
        return {**(_summary(0, record) if generators else dict.fromkeys(_SUMMARY)), **_answered(whole)}
    own = [Share(number + 1, generators).has(whole.session) for number in range(generators)]
    each = [{**_summary(number, record), **_answered(_part(whole, rows))} for number, rows in enumerate(own)]
    found = slowest({"processes": each})
    together = {**_together(record), **_answered(whole)}
    return {**together, "processes": each, "slowest": None if found is None else found[0]}


def latest(section: Mapping[str, Any]) -> Late | None:
    """The process that kept its rate worst; None if it was not measured.

    A process that is late makes its own sessions late, however many punctual ones there are.
    """
    each = section.get("processes") or [section]
    found = _largest(each, "p99")
    if found is None:
        return None
    number, p99_ms = found
    full_ms = (each[number - 1].get("queue_full_s") or 0.0) * 1e3
    name = "the generator" if len(each) == 1 else f"generator {number} of {len(each)}"
    return Late(name, p99_ms, full_ms >= _EXPLAINED * p99_ms > 0)


def slowest(section: Mapping[str, Any]) -> tuple[int, float] | None:
    """The number (from 1) and the largest lateness, in ms, of the slowest of several generators."""
    return _largest(section.get("processes") or [], "max")


def processes_text(report: Report) -> str:
    """`2 generators, 3 observers`; empty for one of each."""
    config = report.get("config", {})
    counts = (("generators", config.get("generators", 1)), ("observers", config.get("observers", 1)))
    return ", ".join(f"{count} {name}" for name, count in counts if count > 1)


def process_lines(reports: Iterable[Report]) -> Iterator[str]:
    """Yields a line per number of processes, for below a table.

    There is no line if every run had one generator and one observer.
    """
    late_ms: dict[str, list[float]] = {}
    for report in reports:
        if text := processes_text(report):
            found = slowest(report.get("generator", {}))
            late_ms.setdefault(text, []).extend([] if found is None else [found[1]])
    for text, found_ms in sorted(late_ms.items()):
        yield f"{text}" + (f"; the slowest generator was at most {max(found_ms):,.0f} ms late." if found_ms else ".")


def _largest(each: Sequence[Mapping[str, Any]], name: str) -> tuple[int, float] | None:
    """Returns the number (from 1) and the figure of the process with the largest figure.

    `name` is a figure of `lateness_ms`, in ms. None if no process has it.
    """
    late = [(number, (one.get("lateness_ms") or {}).get(name)) for number, one in enumerate(each, 1)]
    found = [(number, ms) for number, ms in late if ms is not None]
    return max(found, key=lambda one: one[1]) if found else None


def _summary(number: int, record: Record) -> dict[str, Any]:
    """The figures of a generator's last status line; None each if it wrote no summary."""
    lines = record.load_status[number].items
    summary = lines[-1].get("summary", {}) if lines else {}
    return {name: summary.get(name) for name in _SUMMARY}


def _part(ledger: Ledger, rows: npt.NDArray[np.bool_]) -> Ledger:
    return Ledger(**{name: column[rows] for name, column in vars(ledger).items()})


def _answered(ledger: Ledger) -> dict[str, Any]:
    return {"sent_share": ledger.sent_share, "failed": ledger.failed, "unknown": ledger.unanswered}


def _due_us(record: Record) -> npt.NDArray[np.int64]:
    """Returns when each event was due, in epoch µs.

    A late event of windows is due with the event before it in its generator's share. Its `scheduled_us` is its event
    time, an hour earlier. The events of every other workload are in order of time.
    """
    ledger, generators = record.ledger, len(record.load_status)
    due_us = np.empty_like(ledger.scheduled_us)
    for number in range(1, generators + 1):
        own = Share(number, generators).has(ledger.session)
        due_us[own] = np.maximum.accumulate(ledger.scheduled_us[own])
    return due_us


def _together(record: Record) -> dict[str, Any]:
    """The figures over all events of the run, by the rules of `loadgen.status.Summary`."""
    ledger = record.ledger
    late = lateness(_due_us(record), ledger.sent_us)
    acked_us = ledger.acked_us[ledger.acked_us > 0]
    last_us = int(max(acked_us.max(initial=0) or ledger.sent_us.max(initial=0), record.plan.started_us))
    duration_s = (last_us - record.plan.started_us) / 1e6
    return {
        "lateness_ms": {"p50": late.p50, "p99": late.p99, "max": late.max},
        "events_per_s": round(len(acked_us) / duration_s, 3) if duration_s else 0.0,
    }
