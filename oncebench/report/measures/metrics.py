"""What is measured of a run, as data: each metric with its unit, its direction, and where it stands in a report.

Promise: tables, comparisons, the published page and asv take their figures from here and from nowhere else. A speed
figure is given only for a run of which it tells something (`why_no_speed`): a fast wrong answer is no answer, and a
late generator makes a slow pipeline look fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oncebench.audit.python.model import ROWS
from oncebench.audit.verdict import KEPT
from oncebench.run.meters import WATCHING
from oncebench.scenario.supports import expected_codes

Report = Mapping[str, Any]

# What a figure tells of.
PROMISE, SPEED, LATENCY, CHECKPOINT, PRICE, RECOVERY = (
    "promise", "speed", "latency", "checkpoint", "price", "recovery"
)  # fmt: skip
# A generator that was behind its plan by more than this for one event in a hundred has not kept the rate that the
# figures are said to be of. Sends come in steps of 10 ms.
LATE_MS = 100.0


@dataclass(frozen=True)
class Metric:
    """One metric. Lower is better, but of a share: it also falls when the rest grows.

    Attributes:
        name: in files and on the command line.
        heading: in tables, with the unit.
        about: one of the six kinds above.
        of: the figure in a report; None: not measured there.
        digits: behind the point.
    """

    name: str
    heading: str
    about: str
    of: Callable[[Report], float | None]
    digits: int = 0

    @property
    def promised(self) -> bool:
        """Whether anything but 0 is a broken promise."""
        return self.about == PROMISE


def field(*path: str, scale: float = 1.0) -> Callable[[Report], float | None]:
    """A getter of what stands at a path of a report."""

    def find(report: Report) -> float | None:
        value: Any = report
        for name in path:
            value = None if value is None else value.get(name)
        return None if value is None else float(value) * scale

    return find


def flat_out(report: Report) -> bool:
    """Whether the load was there before the pipeline started: due at once, so that it has neither lateness nor latency,
    but a time that it takes."""
    return bool(report.get("config", {}).get("rate") == "max")


def latency(quantile: str) -> Callable[[Report], float | None]:
    """A getter of a quantile of `latency_ms`; None where it would be the time in a queue, or where fewer sessions than
    one lie above it: the rows of a session are due at one time, so that it would be the maximum by another name."""
    of, above = field("latency_ms", quantile), 1 - float(f"0.{quantile[1:]}")

    def find(report: Report) -> float | None:
        n = report.get("latency_ms", {}).get("n")  # older reports do not tell
        too_few = n is not None and round(n / ROWS * above, 6) < 1
        return None if too_few or flat_out(report) else of(report)

    return find


def _seconds_per_million(report: Report) -> float | None:
    """Of a load that is there at once; another takes as long as it was planned to, while the pipeline keeps up."""
    if not flat_out(report):
        return None
    per_s = field("throughput", "events_per_s")(report)
    return 1e6 / per_s if per_s else None


def _pauses(report: Report) -> bool:
    """Whether a batch fits into the trigger interval, or the load is there at once. A pipeline that begins a batch as
    soon as the last is over keeps the machine busy whatever a batch takes: by the million events it uses what the
    machine has, and the cheaper a batch is the more of them there are."""
    config, batch_ms = report.get("config", {}), field("batches", "trigger_ms")(report)
    fits = batch_ms is not None and batch_ms <= config.get("trigger_ms", 0)
    return fits or flat_out(report)


def _per_million(of: Callable[[Report], float | None]) -> Callable[[Report], float | None]:
    """What a million events take; None where that tells nothing of a batch's price (see `_pauses`)."""
    return lambda report: of(report) if _pauses(report) else None


def _first_row(report: Report) -> float | None:
    """Seconds from the first fault to the first new row. Where the pipeline outlived it and a server was down, rows of
    the batch in hand may come before the silence: there the longest silence is what it took."""
    marks = report.get("recovery") or {}
    seen = [marks.get("first_visible")]
    if seen[0] is not None and marks.get("restart") is None:
        seen += [(fault.get("recovery") or {}).get("longest_gap") for fault in report["faults"]]
    told = [ms for ms in seen if ms is not None]
    return max(told) / 1000 if told else None


def _events_a_batch(report: Report) -> float | None:
    """From the end of the warm-up on, by which prices count: what the checkpoint has is told by event and by batch."""
    batch, million = (field("checkpoint", each, "bytes")(report) for each in ("per_batch", "per_million_events"))
    return batch / million * 1e6 if batch and million else None


def cpu_ms_of_a_batch(report: Report) -> float | None:
    """Processor time of the pipeline and the servers by batch: a fact of one run, and no price. A batch that is longer
    finds more events to take, so that of two runs the one with the longer batches has the dearer ones."""
    million, events = field("cpu_s_per_million_events")(report), _events_a_batch(report)
    return None if million is None or events is None else million * events / 1e3


def _peak_memory(report: Report) -> float | None:
    used = [use["peak_rss_bytes"] for name, use in report.get("resources", {}).items() if name not in WATCHING]
    return sum(used) / 1e6 if used else None


def _broken(report: Report) -> float:
    return float(report["verdict"] == "broken")


METRICS = (
    Metric("broken", "broken promises", PROMISE, _broken),
    Metric("lost", "lost", PROMISE, field("rows", "lost")),
    Metric("duplicated", "duplicated", PROMISE, field("rows", "duplicated")),
    Metric("s_per_million", "s/M events", SPEED, _seconds_per_million),
    Metric("p50_ms", "p50 ms", LATENCY, latency("p50")),
    Metric("p99_ms", "p99 ms", LATENCY, latency("p99")),
    Metric("p999_ms", "p99.9 ms", LATENCY, latency("p999")),
    Metric("gap_ms", "visibility gap ms", LATENCY, field("visibility_gap_ms", "p50")),
    Metric("batch_ms", "batch ms", SPEED, field("batches", "trigger_ms")),
    Metric("prepare_ms", "prepare ms", SPEED, field("sink_ms", "prepare"), 1),
    Metric("decide_ms", "decide ms", SPEED, field("sink_ms", "decide"), 1),
    Metric("commit_ms", "commit ms", SPEED, field("sink_ms", "commit"), 1),
    Metric("checkpoint_percent", "checkpoint %", CHECKPOINT, field("checkpoint", "share_of_batch", scale=100), 1),
    Metric("checkpoint_mb", "checkpoint MB/M", CHECKPOINT,
           _per_million(field("checkpoint", "per_million_events", "bytes", scale=1e-6)), 1),
    Metric("checkpoint_kb_batch", "checkpoint kB/batch", CHECKPOINT,
           field("checkpoint", "per_batch", "bytes", scale=1e-3), 1),
    Metric("checkpoint_files_batch", "checkpoint files/batch", CHECKPOINT,
           field("checkpoint", "per_batch", "files"), 1),
    Metric("cpu_s", "CPU s/M", PRICE, _per_million(field("cpu_s_per_million_events"))),
    Metric("written_mb", "written MB/M", PRICE, _per_million(field("price", "written_bytes", scale=1e-6))),
    Metric("memory_mb", "peak memory MB", PRICE, _peak_memory),
    Metric("recovery_s", "recovery s", RECOVERY, _first_row, 1),
)  # fmt: skip
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


def figure(report: Report, metric: Metric) -> float | None:
    """A metric of a report; None where it was not measured, or tells nothing."""
    if not metric.promised and any(True for _ in why_no_speed(report)):
        return None
    return metric.of(report)


def why_no_speed(report: Report) -> Iterator[str]:
    """Reasons why a run's times and prices tell nothing of its cell; none: they do."""
    expected = expected_codes(report)
    if report["verdict"] != KEPT and not (expected and report["verdict"] == "broken"):
        yield f"its verdict is {report['verdict']}"
    if report.get("interrupted"):
        yield "it was interrupted"
    late = (report.get("generator", {}).get("lateness_ms") or {}).get("p99")
    if late is not None and late > LATE_MS and not flat_out(report):
        yield f"the generator was {late:,.0f} ms late for one event in a hundred"
    unasked = report.get("deaths", {}).get("unasked", 0)
    if unasked:
        yield f"the pipeline died {unasked} time{'s' if unasked > 1 else ''} unasked"
