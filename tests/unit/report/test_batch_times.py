"""A batch ends at the time of Spark's clock, not when its line was written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.python.audit import Sightings
from oncebench.report.measures.batch_times import began_us, ended_us, took_us
from oncebench.report.measures.checkpoint import Progress, per_batch
from oncebench.report.measures.timeline import events_after, timeline

S = 1_000_000
START = 1_000 * S
LATE_US = 490_000  # a line that came so late


def line(at: float, took_s: float, read: int, **more: Any) -> dict[str, Any]:
    """A batch that began at some second of the load."""
    began = START + round(at * S)
    return {
        "kind": "batch", "t_us": began + round(took_s * S) + LATE_US, "began_us": began, "end_offsets": {"0": read},
        "input_rows": 1, "duration_ms": {"triggerExecution": took_s * 1000}, "state": [], **more,
    }  # fmt: skip


def run(*lines: dict[str, Any], sent: int = 8) -> Any:
    acked = START + np.arange(sent, dtype=np.int64) * S // 4
    return SimpleNamespace(
        plan=SimpleNamespace(started_us=START), ledger=SimpleNamespace(acked_us=acked),
        input=SimpleNamespace(table=SimpleNamespace(num_rows=sent)), progress=SimpleNamespace(items=lines),
    )  # fmt: skip


def test_a_batch_ends_when_its_trigger_is_over() -> None:
    reported = line(1.0, 0.25, 2)
    assert (took_us(reported), began_us(reported), ended_us(reported)) == (S // 4, START + S, START + S + S // 4)


@pytest.mark.parametrize("durations", [{"duration_ms": {"triggerExecution": 400}}, {}])
def test_a_line_without_a_begin_has_the_time_it_was_written(durations: dict[str, Any]) -> None:
    reported = {"t_us": START, **durations}
    assert ended_us(reported) == START
    assert began_us(reported) == START - (400_000 if durations else 0)


def test_events_and_lag_use_the_end_of_a_batch() -> None:
    record = run(line(0.0, 0.75, 3), line(0.75, 0.5, 5))
    assert events_after(record, START + S) == 4  # half of the second batch's two
    assert events_after(record, START + round(1.25 * S)) == 3
    seen = Sightings(np.array([START]), None, np.array([START + 2 * S]))
    assert timeline(record, seen)["lag"] == [2, 3]  # five and eight sent; three and five read by then


def test_a_batch_after_the_warm_up_counts_even_if_its_line_is_late() -> None:
    batches = [line(at, 0.5, 1, batch=at) for at in range(6)]
    counted = Progress(batches, START + 4 * S, None).settled()
    assert [each["batch"] for each in counted] == [4, 5]
    assert [each["batch"] for each in Progress(batches, START + 4 * S + 1, None).settled()] == [5]


def test_checkpoint_per_batch_counts_from_the_same_moment() -> None:
    lines = [line(0.0, 1.0, 1), line(1.0, 1.0, 2), line(2.0, 1.0, 3), {**line(2.5, 1.0, 3), "recovered": True}]
    lines.append({"kind": "sink", "t_us": START + 9 * S})
    assert per_batch({"bytes": 300, "files": 15}, lines, START + 2 * S) == {"bytes": 150.0, "files": 7.5}
    assert per_batch({"bytes": 300, "files": 15}, lines, START + 9 * S) is None
    assert per_batch(None, lines, START) is None
