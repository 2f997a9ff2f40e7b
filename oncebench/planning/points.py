"""Reads from reports what a plan is computed from: one `Point` per healthy run.

Promise: pure functions of stored reports. A run counts if its guarantee was kept, its generator was punctual, it kept
up with its load, and only the fields `_PLANNED` differ from the defaults of `oncebench run`. All runs are of one
machine and the same servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oncebench.errors import ExitCode, UserError
from oncebench.report.comparisons.paired import machine_of, servers_of
from oncebench.report.comparisons.sustained import backlog_in_latency
from oncebench.report.measures.checkpoint import cores_of
from oncebench.report.measures.metrics import BY_NAME, cpu_ms_of_a_batch, field, figure, flat_out
from oncebench.report.outcome import is_healthy
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell

# The fields of a cell that a plan has terms for, and those without an effect on a batch: how long the load is, its
# seed, and how much of it is not measured. A run with another value of any other field would bend the fit.
_PLANNED = frozenset({"rate", "partitions", "trigger_ms", "max_events_per_batch", "sessions", "seed", "warmup_s"})


@dataclass(frozen=True)
class PlanSetting:
    """The setting that a plan chooses, and the load that it is for.

    Attributes:
        rate: events per second; None: flat out, so only batches have a time.
        cores: tasks that Spark runs at once; in a plan also the processor cores (`Costs.alone` names their users).
        partitions: partitions of input and output, and Spark tasks per batch.
        trigger_ms: milliseconds between the starts of batches; 0: no pause.
    """

    rate: float | None
    cores: int
    partitions: int
    trigger_ms: int = 0

    @property
    def text(self) -> str:
        """The setting in words: `3,000 events/s, 4 partitions, trigger 1,000 ms`."""
        load = "flat out" if self.rate is None else f"{self.rate:,.0f} events/s"
        trigger = f", trigger {self.trigger_ms:,} ms" if self.trigger_ms else ""
        return f"{load}, {self.partitions} partition{'s' if self.partitions > 1 else ''}{trigger}"


@dataclass(frozen=True)
class Point:
    """What one run measured.

    Attributes:
        events: input events per batch, median.
        batch_ms: duration of a batch, median.
        cpu_ms: processor time of the pipeline and the servers per batch.
        p50_ms, p99_ms: latency to visibility; None: flat out, or too few sessions.
        machine: processor cores of the machine.
        alone: whether `cpu_ms` is of the pipeline alone, because a server is the user's and cannot be measured.
    """

    setting: PlanSetting
    events: float
    batch_ms: float
    cpu_ms: float
    p50_ms: float | None
    p99_ms: float | None
    machine: int
    alone: bool = False


def points(reports: Iterable[Report], sink: str, guarantee: str, variant: str) -> list[Point]:
    """The points of all runs of this sink, guarantee and variant.

    Raises:
        UserError: the runs are of several machines or servers, whose costs differ by a factor (exit code 2).
    """
    described = ((report, _point(report)) for report in reports if describes(report, sink, guarantee, variant))
    found = [(report, point) for report, point in described if point is not None]
    for places, of in (("machines", machine_of), ("groups of servers", _servers_text)):
        different = sorted({of(report) or "unknown" for report, _ in found})
        if len(different) > 1:
            raise UserError(
                f"the runs of {sink} {guarantee} {variant} are of {len(different)} {places} ({'; '.join(different)}), "
                "and a plan is for one. Give --from a file of one, or give --measure, which runs the cells here",
                exit_code=ExitCode.USAGE,
            )
    return [point for _, point in found]


def describes(report: Report, sink: str, guarantee: str, variant: str) -> bool:
    """Returns whether a report is of a healthy run of this configuration that kept up.

    Only the `_PLANNED` fields may differ from their defaults. A field that an older report lacks had its default.
    """
    cell = report["cell"]
    config: dict[str, Any] = dict(report.get("config", {}))
    usual = Cell(sink, guarantee, variant).as_json()
    return (
        (cell["sink"], cell["guarantee"], cell["variant"]) == (sink, guarantee, variant)
        and is_healthy(report)
        and not report.get("probe")
        and not backlog_in_latency(report)
        and all(config.get(name, usual[name]) == usual[name] for name in usual.keys() - _PLANNED)
    )


def _point(report: Report) -> Point | None:
    batch_ms = figure(report, BY_NAME["batch_ms"])
    alone = bool(servers_of(report))
    cpu_ms = cpu_ms_of_a_batch(report, alone)
    events = field("batches", "input_rows")(report)
    config: dict[str, Any] = dict(report.get("config", {}))
    machine, slots = report.get("environment", {}).get("cores"), cores_of(config.get("master", Cell.master))
    if not batch_ms or not cpu_ms or not events or not machine or not slots:
        return None
    setting = PlanSetting(
        None if flat_out(report) else float(config["rate"]),
        slots,
        int(config["partitions"]),
        int(config["trigger_ms"]),
    )
    p50, p99 = (figure(report, BY_NAME[name]) for name in ("p50_ms", "p99_ms"))
    return Point(setting, events, batch_ms, cpu_ms, p50, p99, int(machine), alone)


def _servers_text(report: Report) -> str:
    return ", ".join(f"{name} {place}" for name, place in servers_of(report).items()) or "started by the run"
