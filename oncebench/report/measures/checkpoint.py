"""The cost of checkpointing and of the sink's protocol per batch.

Spark's own times come from its progress events: `walCommit` (offset log), `commitOffsets` (commit log), and the commit
of the state stores. The state commits run inside the tasks, as many at a time as there are cores. Share of batch is
(offset log + commit log + state commit) / trigger time.
Only batches with input count that began after the warm-up and after the start-up of their attempt. The delivery code
measures the sink's times itself, because Spark includes them in `addBatch`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oncebench.record.schema import BATCH, SINK, STARTED
from oncebench.report.measures.batch_times import began_us, ended_us

# The first batches of an attempt pay for start-up (JIT, first RocksDB files).
SETTLED_AFTER = 3
# The parts of a batch's time, in their order; see `split`.
PARTS = ("planning", "rest", "state", "prepare", "decide", "commit", "offset_log", "commit_log", "total")


@dataclass(frozen=True)
class Progress:
    """The pipeline's reports of its batches.

    Attributes:
        lines: the lines of `progress.jsonl`.
        from_us: the end of the warm-up, in epoch µs; batches that began before it do not count.
        cores: how many tasks ran at a time; None: unknown, and assumed to be enough.
    """

    lines: Sequence[Mapping[str, Any]]
    from_us: int
    cores: int | None

    def settled(self) -> list[Mapping[str, Any]]:
        """The batches that count."""
        found: list[Mapping[str, Any]] = []
        since_start = 0
        for line in sorted(self.lines, key=lambda each: int(each["t_us"])):
            if line["kind"] == STARTED:
                since_start = 0
            elif line["kind"] == BATCH and line["input_rows"] > 0:
                since_start += 1
                if since_start > SETTLED_AFTER and began_us(line) >= self.from_us:
                    found.append(line)
        return found

    def state_commit_ms(self, line: Mapping[str, Any]) -> float:
        """The time for which a batch waited for its state commits.

        Spark reports their sum over the partitions.
        """
        waited_ms = 0.0
        for op in line["state"]:
            partitions = max(1, op.get("numShufflePartitions", 1))
            waited_ms += op["commitTimeMs"] / min(partitions, self.cores or partitions)
        return waited_ms


def cores_of(master: str, workers: int = 0) -> int | None:
    """Returns how many tasks Spark runs at a time; None if its master's name has no number.

    Args:
        workers: of the cluster that the run starts, with one core each; 0: it starts none.
    """
    if workers:
        return workers
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master):
        return int(found[1]) * int(found[2])
    found = re.fullmatch(r"local\[\s*(\d+)\s*(?:,.*)?\]", master)
    return int(found[1]) if found else 1 if master == "local" else None


def checkpoint_costs(progress: Progress, folder: Path) -> dict[str, float | int | None]:
    """Medians per batch in ms, the share of a batch, and the final size of the checkpoint.

    The size is None if the folder is gone.
    """
    batches = progress.settled()
    wal = [line["duration_ms"].get("walCommit", 0) for line in batches]
    log = [line["duration_ms"].get("commitOffsets", 0) for line in batches]
    state = [progress.state_commit_ms(line) for line in batches]
    total = sum(line["duration_ms"]["triggerExecution"] for line in batches)
    files = [path for path in folder.rglob("*") if path.is_file()]
    there = folder.is_dir()  # a stored run may lack it when it is judged again
    return {
        "wal_ms": _median(wal),
        "commit_log_ms": _median(log),
        "state_commit_ms": _median(state),
        "bytes": sum(path.stat().st_size for path in files) if there else None,
        "files": len(files) if there else None,
        "share_of_batch": round((sum(wal) + sum(log) + sum(state)) / total, 4) if total else None,
    }


def per_batch(
    written: Mapping[str, float] | None, lines: Sequence[Mapping[str, Any]], from_us: int
) -> dict[str, float] | None:
    """The `bytes` and `files` that a batch added to the checkpoint, from `from_us` on.

    Per batch and not per event, because the number of batches depends on the speed of the machine.
    """
    batches = sum(line["kind"] == BATCH and not line.get("recovered") and ended_us(line) >= from_us for line in lines)
    if written is None or not batches:
        return None
    return {name: round(value / batches, 2) for name, value in written.items()}


def batch_costs(progress: Progress) -> dict[str, float | int | None]:
    """The number of all batches with input, and the medians in ms of the batches that count.

    All are None for an engine without batches.
    """
    batches = progress.settled()
    all_batches = [line for line in progress.lines if line["kind"] == BATCH]
    return {
        "n": sum(line["input_rows"] > 0 for line in all_batches) if all_batches else None,
        "trigger_ms": _median([line["duration_ms"]["triggerExecution"] for line in batches]),
        "add_batch_ms": _median([line["duration_ms"].get("addBatch", 0) for line in batches]),
        "planning_ms": _median([line["duration_ms"].get("queryPlanning", 0) for line in batches]),
        "input_rows": _median([line["input_rows"] for line in batches]),
    }


def split(progress: Progress) -> dict[str, float | None]:
    """The mean batch in ms, split into parts that add up to `total`.

    The parts of Spark are planning (offsets to read, plan), the state's commit, the offset log and the commit log. The
    parts of the sink are prepare (of the slowest task), decide and commit. The `rest` is reading, shuffling and
    computing rows. For a sink that measures no times of its own, the rest includes writing.
    """
    sinks = {line["batch"]: line["timings_ms"] for line in progress.lines if line["kind"] == SINK}
    parts = [
        _parts(line["duration_ms"], progress.state_commit_ms(line), sinks.get(line["batch"], {}))
        for line in progress.settled()
    ]
    return {name: round(float(np.mean([part[name] for part in parts])), 2) if parts else None for name in PARTS}


def _parts(spent: Mapping[str, float], state: float, sink: Mapping[str, float]) -> dict[str, float]:
    known = {
        "planning": sum(spent.get(name, 0) for name in ("latestOffset", "getBatch", "queryPlanning")),
        "state": state,
        **{step: sink.get(step, 0.0) for step in ("prepare", "decide", "commit")},
        "offset_log": spent.get("walCommit", 0),
        "commit_log": spent.get("commitOffsets", 0),
    }
    return {**known, "rest": spent["triggerExecution"] - sum(known.values()), "total": spent["triggerExecution"]}


def sink_costs(progress: Progress) -> dict[str, float | None]:
    """Medians of the protocol's steps in ms; None for a step that the protocol does not have."""
    wanted = {line["batch"] for line in progress.settled()}
    steps: dict[str, list[float]] = {}
    for line in progress.lines:
        if line["kind"] == SINK and line["batch"] in wanted:
            for step, spent in line["timings_ms"].items():
                steps.setdefault(step, []).append(spent)
    return {name: _median(steps.get(name, [])) for name in ("prepare", "decide", "commit", "total")}


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 2) if values else None
