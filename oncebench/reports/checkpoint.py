"""What checkpointing and the sink's protocol cost in each batch: pure functions of the pipeline's progress.

Spark's own times come from its progress events: `walCommit` (offset log), `commitOffsets` (commit log) and the state
stores' commit, which runs inside the tasks; the largest of them is what a batch waits for. Share of batch is
(offset log + commit log + state commit) / trigger time, over all batches with input. The sink's times are those that
the delivery code took itself, because Spark counts them into `addBatch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# The first batches pay for start-up (JIT, first RocksDB files).
SETTLED_AFTER = 3
# Of a batch's time, in the order in which they come; see `split`.
PARTS = ("planning", "rest", "state", "prepare", "decide", "commit", "offset_log", "commit_log", "total")


def settled(progress: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Batches with input that come after the start-up of their life of the pipeline."""
    found: list[Mapping[str, Any]] = []
    since_start = 0
    for line in sorted(progress, key=lambda each: int(each["t_us"])):
        if line["kind"] == "started":
            since_start = 0
        elif line["kind"] == "batch" and line["input_rows"] > 0:
            since_start += 1
            if since_start > SETTLED_AFTER:
                found.append(line)
    return found


def checkpoint_costs(progress: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, float | int | None]:
    """Medians per batch in ms, the share of a batch, and what the checkpoint folder holds at the end."""
    batches = settled(progress)
    wal = [line["duration_ms"].get("walCommit", 0) for line in batches]
    log = [line["duration_ms"].get("commitOffsets", 0) for line in batches]
    state = [_state_commit(line) for line in batches]
    total = sum(line["duration_ms"]["triggerExecution"] for line in batches)
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {
        "wal_ms": _median(wal),
        "commit_log_ms": _median(log),
        "state_commit_ms": _median(state),
        "bytes": sum(path.stat().st_size for path in files),
        "files": len(files),
        "share_of_batch": round((sum(wal) + sum(log) + sum(state)) / total, 4) if total else None,
    }


def batch_costs(progress: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """How many batches there were, and the median of their times in ms."""
    batches = settled(progress)
    return {
        "n": sum(line["kind"] == "batch" and line["input_rows"] > 0 for line in progress),
        "trigger_ms": _median([line["duration_ms"]["triggerExecution"] for line in batches]),
        "add_batch_ms": _median([line["duration_ms"].get("addBatch", 0) for line in batches]),
        "planning_ms": _median([line["duration_ms"].get("queryPlanning", 0) for line in batches]),
        "input_rows": _median([line["input_rows"] for line in batches]),
    }


def split(progress: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean batch in ms, split into parts that add up to `total`: planning (offsets to read, plan), the state's
    commit, the sink's prepare (of the slowest task), decide and commit, the offset log, the commit log, and the `rest`
    (reading, shuffling, computing rows; of a sink that takes no times of its own, also its writing)."""
    batches = settled(progress)
    sinks = {line["batch"]: line["timings_ms"] for line in progress if line["kind"] == "sink"}
    parts = [_parts(line["duration_ms"], _state_commit(line), sinks.get(line["batch"], {})) for line in batches]
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


def sink_costs(progress: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Medians of the protocol's steps in ms; a step that the protocol does not have is None."""
    wanted = {line["batch"] for line in settled(progress)}
    steps: dict[str, list[float]] = {}
    for line in progress:
        if line["kind"] == "sink" and line["batch"] in wanted:
            for step, spent in line["timings_ms"].items():
                steps.setdefault(step, []).append(spent)
    return {name: _median(steps.get(name, [])) for name in ("prepare", "decide", "commit", "total")}


def _state_commit(line: Mapping[str, Any]) -> float:
    # commitTimeMs is summed over the state's partitions, which commit side by side in the tasks.
    return float(sum(op["commitTimeMs"] / max(1, op.get("numShufflePartitions", 1)) for op in line["state"]))


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 2) if values else None
