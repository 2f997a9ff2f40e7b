"""The metrics of a run, as data: unit, direction, and where each metric stands in a report.

Promise: tables, comparisons, the published page and asv take their figures from here and from nowhere else. A run
without a meaningful speed (`why_no_speed`) has no speed figures. A wrong answer must not look fast, and a late
generator makes a slow pipeline look fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from oncebench.audit.clock import why_no_times
from oncebench.audit.python.model import ROWS
from oncebench.audit.verdict import Verdict
from oncebench.observe.resources import WATCHING
from oncebench.report.configuration import run_kind_of
from oncebench.report.measures.bottleneck import LATE_MS
from oncebench.report.measures.generators import Late, latest
from oncebench.report.schema import Report
from oncebench.scenario.supports import expected_codes
from pipeline.config import SESSIONS

Quantile = Literal["p50", "p95", "p99", "p999"]
Getter = Callable[[Report], float | None]

# A latency counts from the scheduled time, so it includes the lateness of the generator. At more than this share of the
# p99 latency, by the p99 of the lateness, tables say so.
LATE_SHARE = 0.25
# The kinds of figures.
PROMISE, SPEED, LATENCY, CHECKPOINT, PRICE, RECOVERY = (
    "promise", "speed", "latency", "checkpoint", "price", "recovery"
)  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """One metric. Lower is better, except for a share: a share also falls when the rest grows.

    Attributes:
        name: in files and on the command line.
        heading: in tables, with the unit.
        about: one of the six kinds above.
        means: the heading in words, as the end of a sentence.
        of: reads the figure from a report; None: the report has no such figure.
        digits: number of decimals.
    """

    name: str
    heading: str
    about: str
    means: str
    of: Getter
    digits: int = 0

    @property
    def promised(self) -> bool:
        """Whether any value above 0 is a broken promise."""
        return self.about == PROMISE


def field(*path: str, scale: float = 1.0) -> Getter:
    """A getter of the value at a path of a report."""

    def find(report: Report) -> float | None:
        value: Any = report
        for name in path:
            value = None if value is None else value.get(name)
        return None if value is None else float(value) * scale

    return find


# Input events per second. At a rate that the pipeline keeps up with, this is the rate.
THROUGHPUT = field("throughput", "events_per_s")


def has_batches(report: Report) -> bool:
    """Whether the engine works in batches. Otherwise a report has no figure about one."""
    return report["batches"].get("n", 0) is not None


def flat_out(report: Report) -> bool:
    """Whether the load was complete before the pipeline started (`--rate max`).

    All events are due at once. Such a run has neither lateness nor latency, only the time that it takes.
    """
    return bool(report.get("config", {}).get("rate") == "max")


def latencies_needed(quantile: Quantile) -> int:
    """Returns how many independent latencies a quantile needs: at least one must lie above it."""
    return round(1 / (1 - float(f"0.{quantile[1:]}")))


def independent_latencies(report: Report) -> float | None:
    """Returns how many latencies of a report are independent; None: older reports lack `n`.

    The rows of a session are due at one time and mostly become visible together, so they count as one. In other
    workloads each row has a time of its own.
    """
    n = report.get("latency_ms", {}).get("n")
    return None if n is None else n / (ROWS if run_kind_of(report).workload == SESSIONS else 1)


def too_few_latencies(report: Report, quantile: Quantile) -> bool:
    """Whether fewer than one independent latency lies above a quantile.

    The quantile would then just be the maximum.
    """
    n = independent_latencies(report)
    return n is not None and n < latencies_needed(quantile)


def latency(quantile: Quantile) -> Getter:
    """A getter of a quantile of `latency_ms`.

    It returns None for a flat-out load, whose latency is the time in a queue, and for too few latencies.
    """
    of = field("latency_ms", quantile)
    return lambda report: None if too_few_latencies(report, quantile) or flat_out(report) else of(report)


def _seconds_per_million(report: Report) -> float | None:
    """The time per million events; only for a flat-out load.

    Any other load takes as long as planned while the pipeline keeps up.
    """
    if not flat_out(report):
        return None
    per_s = THROUGHPUT(report)
    return 1e6 / per_s if per_s else None


def _has_price(report: Report) -> bool:
    """Whether a batch fits into the trigger interval, or the load is flat out.

    A pipeline that starts a batch as soon as the last one ends keeps the machine busy, however long a batch takes. Its
    use per million events is what the machine has: the cheaper a batch is, the more batches there are.
    """
    config, batch_ms = report.get("config", {}), field("batches", "trigger_ms")(report)
    fits = batch_ms is not None and batch_ms <= config.get("trigger_ms", 0)
    return fits or flat_out(report)


def _per_million(of: Getter) -> Getter:
    """A getter of a figure per million events; None without a price (`_has_price`)."""
    return lambda report: of(report) if _has_price(report) else None


def _recovery_s(report: Report) -> float | None:
    """Seconds from the first fault to the first new row.

    If the pipeline survived the fault because only a server was down, rows of the current batch may still arrive before
    the silence. Then the longest silence is the recovery.
    """
    marks = report.get("recovery")
    if not marks or marks.get("first_visible") is None:
        return None
    times = [marks["first_visible"]]
    if marks.get("restart") is None:
        recoveries = [fault.get("recovery") for fault in report["faults"]]
        times += [each.get("longest_gap") for each in recoveries if each]
    return max(ms for ms in times if ms is not None) / 1000


def _events_per_batch(report: Report) -> float | None:
    """Counted from the end of the warm-up on, as prices are.

    The checkpoint's bytes are reported per event and per batch; their ratio is the number of events in a batch.
    """
    batch, million = (field("checkpoint", each, "bytes")(report) for each in ("per_batch", "per_million_events"))
    return batch / million * 1e6 if batch and million else None


def cpu_ms_of_a_batch(report: Report, alone: bool = False) -> float | None:
    """Processor time of the pipeline and the servers, or of the pipeline alone, per batch in ms.

    This describes one run and is not a price. A longer batch takes in more events, so of two runs the run with longer
    batches has the more expensive batches.
    """
    name = "pipeline_cpu_s_per_million_events" if alone else "cpu_s_per_million_events"
    million, events = field(name)(report), _events_per_batch(report)
    return None if million is None or events is None else million * events / 1e3


def _peak_memory(report: Report) -> float | None:
    used = [use["peak_rss_bytes"] for name, use in report.get("resources", {}).items() if name not in WATCHING]
    return sum(used) / 1e6 if used else None


def _broken(report: Report) -> float:
    return float(report["verdict"] == Verdict.BROKEN)


METRICS = (
    Metric("broken", "broken promises", PROMISE, "runs that broke their promise",
           _broken),
    Metric("lost", "lost", PROMISE, "expected rows that no committed reader can see",
           field("rows", "lost")),
    Metric("duplicated", "duplicated", PROMISE, "copies of rows beyond the first",
           field("rows", "duplicated")),
    Metric("s_per_million", "s/M events", SPEED, "seconds per million input events under a flat-out load",
           _seconds_per_million),
    Metric("p50_ms", "p50 ms", LATENCY, "the latency that half of the rows do not exceed",
           latency("p50")),
    Metric("p99_ms", "p99 ms", LATENCY, "the latency that 99 of 100 rows do not exceed",
           latency("p99")),
    Metric("p999_ms", "p99.9 ms", LATENCY, "the latency that 999 of 1,000 rows do not exceed",
           latency("p999")),
    Metric("gap_ms", "visibility gap ms", LATENCY, "the median time from the write of a row until a reader gets it",
           field("visibility_gap_ms", "p50")),
    Metric("batch_ms", "batch ms", SPEED, "the median time of a batch",
           field("batches", "trigger_ms")),
    Metric("prepare_ms", "prepare ms", SPEED, "until the rows of a batch are safe, in its slowest task",
           field("sink_ms", "prepare"), 1),
    Metric("decide_ms", "decide ms", SPEED, "writing the sink's decision to commit a batch",
           field("sink_ms", "decide"), 1),
    Metric("commit_ms", "commit ms", SPEED, "making the rows of a batch visible",
           field("sink_ms", "commit"), 1),
    Metric("checkpoint_percent", "checkpoint %", CHECKPOINT, "the checkpoint's share of the time of a batch",
           field("checkpoint", "share_of_batch", scale=100), 1),
    Metric("checkpoint_mb", "checkpoint MB/M", CHECKPOINT, "megabytes of the checkpoint per million input events",
           _per_million(field("checkpoint", "per_million_events", "bytes", scale=1e-6)), 1),
    Metric("checkpoint_kb_batch", "checkpoint kB/batch", CHECKPOINT, "kilobytes of the checkpoint per batch",
           field("checkpoint", "per_batch", "bytes", scale=1e-3), 1),
    Metric("checkpoint_files_batch", "checkpoint files/batch", CHECKPOINT, "files of the checkpoint per batch",
           field("checkpoint", "per_batch", "files"), 1),
    Metric("cpu_s", "CPU s/M", PRICE, "processor seconds of pipeline and servers per million input events",
           _per_million(field("cpu_s_per_million_events"))),
    Metric("written_mb", "written MB/M", PRICE, "megabytes that pipeline and servers wrote per million input events",
           _per_million(field("price", "written_bytes", scale=1e-6))),
    Metric("memory_mb", "peak memory MB", PRICE, "the largest memory of each component, added up",
           _peak_memory),
    Metric("recovery_s", "recovery s", RECOVERY, "seconds from a fault to the first new row that a reader saw",
           _recovery_s, 1),
)  # fmt: skip
BY_NAME = {metric.name: metric for metric in METRICS}
# The metrics in which a guarantee has a cost while nothing fails.
COSTS = tuple(metric for metric in METRICS if not metric.promised and metric.about != RECOVERY)


def figure(report: Report, metric: Metric) -> float | None:
    """A metric of a report; None where it was not measured or has no meaning."""
    if not metric.promised and not has_speed(report):
        return None
    return metric.of(report)


def has_speed(report: Report) -> bool:
    """Whether a run's times and prices describe its cell."""
    return not any(True for _ in why_no_speed(report))


def why_no_speed(report: Report) -> Iterator[str]:
    """Every reason why a run's times and prices do not describe its cell."""
    expected = expected_codes(report)
    if report["verdict"] != Verdict.KEPT and not (expected and report["verdict"] == Verdict.BROKEN):
        yield f"its verdict is {report['verdict']}"
    if report.get("interrupted"):
        yield "it was interrupted"
    if why_no_times(report.get("clock_moved_us")):
        yield "the clock of its machine was moved"
    if (late := generator_late(report)) is not None:
        yield late
    unasked = report.get("deaths", {}).get("unasked", 0)
    if unasked:
        yield f"the pipeline died {unasked} time{'s' if unasked > 1 else ''} unasked"


def generator_late(report: Report) -> str | None:
    """Says which generator did not keep the rate of the report; None if each kept it."""
    found = latest(report.get("generator", {}))
    if found is None or found.p99_ms <= LATE_MS or flat_out(report):
        return None
    why = "the machine was busy: run it again"
    if found.waited:
        why = "Kafka's acknowledgements were too slow: lower the rate"
    return f"{found.name} was {found.p99_ms:,.0f} ms late for one event in a hundred ({why})"


def lateness_in_latency(report: Report) -> Late | None:
    """The generator that was late by more than LATE_SHARE of the p99 latency; None if none was."""
    found, p99_ms = latest(report.get("generator", {})), latency("p99")(report)
    return None if found is None or p99_ms is None or found.p99_ms <= LATE_SHARE * p99_ms else found
