"""Names what limited a run.

Candidates are the generator, Kafka's acknowledgements, the trigger, the cores, and each part of a batch.

Promise: a pure function of what the run measured. The rules are tried in this order:

1. A generator was late: the run says nothing about the pipeline. If its queue was full meanwhile, Kafka acknowledged
   its events too slowly.
2. A batch is shorter than the trigger: the pipeline waits for the next one.
3. All cores of the machine are in use: the process that uses most of them. Cores of other machines are not measured.
4. Otherwise the longest part of a batch: planning in the driver, tasks in the executors, the state's commit, the sink's
   protocol, or Spark's checkpoint logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oncebench.observe.resources import Use
from oncebench.record import Record, events
from oncebench.report.measures.generators import Late, generator_section, latest
from oncebench.scenario.cell import Cell

# Above this share of the cores' time, processes wait for each other's cores. The sampler misses some short processes.
BUSY = 0.9
# The generator did not keep its rate if more than one event in a hundred was later than this. Sends come in steps of
# 10 ms.
LATE_MS = 100.0
# The parts of a batch (`oncebench.report.measures.checkpoint.PARTS`) under the name of what does the work.
_WORK: Mapping[str, tuple[str, ...]] = {
    "driver": ("planning",),
    "executors": ("rest",),
    "state": ("state",),
    "commit": ("prepare", "decide", "commit"),
    "checkpoint": ("offset_log", "commit_log"),
}


@dataclass(frozen=True)
class Bottleneck:
    """What limited a run.

    Attributes:
        limit: generator, acknowledgements, trigger, cores or batch.
        part: the process that uses most of the cores, or the longest part of a batch; empty for the trigger. For
            generator and acknowledgements: the generator that was late.
        share: of the cores' time that is used, or of the batch; None for the other limits.
        cores_busy: share of the time of all cores that the run's processes used; None: not measured.
    """

    limit: str
    part: str
    share: float | None
    cores_busy: float | None

    def as_json(self) -> dict[str, Any]:
        """The form in a report."""
        return asdict(self)


def bottleneck(
    uses: Mapping[str, Use],
    measured_s: float,
    cores: int | None,
    split_ms: Mapping[str, float | None],
    trigger_ms: int,
    late: Late | None,
) -> Bottleneck | None:
    """What limited the run; None where neither cores nor batches were measured.

    Args:
        uses: what each component used during the measured time.
        measured_s: the measured time in seconds.
        cores: processor cores of the machine; None: the pipeline runs on other machines too.
        split_ms: the mean batch in parts.
        trigger_ms: milliseconds between the starts of batches; 0: no pause.
        late: the generator that did not keep its rate; None if each kept it.
    """
    used_s = sum(use.cpu_s for use in uses.values())
    busy = round(used_s / (cores * measured_s), 3) if cores and measured_s > 0 and used_s else None
    parts = {name: sum(split_ms.get(part) or 0.0 for part in of) for name, of in _WORK.items()}
    total_ms = sum(parts.values())
    if late is not None:
        return Bottleneck("acknowledgements" if late.waited else "generator", late.name, None, busy)
    if total_ms and trigger_ms > total_ms:
        return Bottleneck("trigger", "", None, busy)
    if busy is not None and busy >= BUSY:
        largest = max(uses, key=lambda name: uses[name].cpu_s)
        return Bottleneck("cores", largest, round(uses[largest].cpu_s / used_s, 3), busy)
    if not total_ms:
        return None
    longest = max(parts, key=lambda name: parts[name])
    return Bottleneck("batch", longest, round(parts[longest] / total_ms, 3), busy)


def of_run(
    record: Record,
    cell: Cell,
    uses: Mapping[str, Use],
    facts: Mapping[str, Any],
    split_ms: Mapping[str, float | None],
) -> Bottleneck | None:
    """Returns what limited a recorded run; None for a run with faults.

    `uses` and `facts` are as in `make_report`.
    """
    if cell.faulted:
        return None
    ends_us = [line["t_us"] for line in record.timeline.items if line["event"] in (events.DRAINED, events.STALLED)]
    until_us = facts.get("measured_until_us") or (ends_us[-1] if ends_us else 0)
    measured_s = (until_us - facts.get("measured_from_us", 0)) / 1e6
    return bottleneck(
        uses,
        measured_s,
        (facts.get("environment") or {}).get("cores") if cell.on_this_machine else None,
        split_ms,
        cell.trigger_ms,
        None if cell.rate == "max" else _late(record),
    )


def _late(record: Record) -> Late | None:
    """The generator that was late; None if each kept its rate."""
    found = latest(generator_section(record))
    return None if found is None or found.p99_ms <= LATE_MS else found
