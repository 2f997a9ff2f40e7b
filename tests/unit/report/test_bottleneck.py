"""The bottleneck of a run follows from what the run measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oncebench.observe.resources import Use
from oncebench.record import Ledger
from oncebench.report.measures.bottleneck import Bottleneck, bottleneck, of_run
from oncebench.report.measures.generators import Late, latest
from oncebench.scenario.cell import Cell

SPLIT = {"planning": 60.0, "rest": 90.0, "state": 20.0, "prepare": 10.0, "decide": 5.0, "commit": 15.0,
         "offset_log": 2.0, "commit_log": 3.0, "total": 205.0}  # fmt: skip
IDLE = {"spark_jvm": Use(cpu_s=6.0), "broker": Use(cpu_s=2.0)}
FULL = {"spark_jvm": Use(cpu_s=13.0), "broker": Use(cpu_s=3.0), "generator": Use(cpu_s=3.0)}


def found(
    uses: dict[str, Use] = IDLE, split: dict[str, float] = SPLIT, trigger_ms: int = 0, late: Late | None = None
) -> Bottleneck | None:
    return bottleneck(uses, 10.0, 2, split, trigger_ms, late)


@pytest.mark.parametrize(
    ("longest", "part"),
    [
        ("planning", "driver"),
        ("rest", "executors"),
        ("state", "state"),
        ("decide", "commit"),
        ("commit_log", "checkpoint"),
    ],
)
def test_the_longest_part_of_a_batch_is_the_bottleneck(longest: str, part: str) -> None:
    limit = found(split={**SPLIT, longest: 500.0})
    assert limit is not None
    assert (limit.limit, limit.part, limit.cores_busy) == ("batch", part, 0.4)
    assert limit.share is not None
    assert 0.5 < limit.share < 1


def test_busy_cores_come_before_the_parts_of_a_batch() -> None:
    assert found(FULL) == Bottleneck("cores", "spark_jvm", round(13 / 19, 3), 0.95)


def test_cores_of_a_cluster_are_no_bottleneck() -> None:
    limit = bottleneck(FULL, 10.0, None, SPLIT, 0, None)
    assert limit is not None
    assert (limit.limit, limit.cores_busy) == ("batch", None)


def test_a_late_generator_hides_every_other_bottleneck() -> None:
    one, second = Late("the generator", 300.0, False), Late("generator 2 of 3", 300.0, False)
    assert found(FULL, trigger_ms=5_000, late=one) == Bottleneck("generator", "the generator", None, 0.95)
    assert found(FULL, late=second) == Bottleneck("generator", "generator 2 of 3", None, 0.95)


def test_a_generator_that_waits_for_kafka_is_no_bottleneck() -> None:
    late = Late("the generator", 300.0, True)
    assert found(FULL, late=late) == Bottleneck("acknowledgements", "the generator", None, 0.95)


def test_a_pipeline_that_waits_for_its_trigger_has_no_slow_part() -> None:
    assert found(trigger_ms=1_000) == Bottleneck("trigger", "", None, 0.4)
    assert found(trigger_ms=100) != Bottleneck("trigger", "", None, 0.4)


_NOTHING: Any = np.zeros(0, np.int64)
NO_EVENTS = Ledger(**dict.fromkeys(Ledger.__dataclass_fields__, _NOTHING))


def test_nothing_measured_means_no_bottleneck() -> None:
    assert bottleneck({}, 0.0, 2, dict.fromkeys(SPLIT, None), 0, None) is None


@pytest.mark.parametrize("faults", [(), ("after-commit:kill",)])
def test_a_run_with_a_fault_has_no_bottleneck(faults: tuple[str, ...]) -> None:
    end: Any = SimpleNamespace(items=({"t_us": 10_000_000, "event": "drained"},))
    record: Any = SimpleNamespace(timeline=end, load_status=(), ledger=NO_EVENTS)
    cell = Cell("kafka", "exactly-once", "two-phase", faults=faults)
    limit = of_run(record, cell, IDLE, {"measured_from_us": 0, "environment": {"cores": 2}}, SPLIT)
    assert (limit is None) == bool(faults)


def test_cores_are_busy_until_the_last_row_of_a_flat_out_load() -> None:
    end: Any = SimpleNamespace(items=({"t_us": 10_000_000, "event": "drained"},))
    record: Any = SimpleNamespace(timeline=end, load_status=(), ledger=NO_EVENTS)
    uses = {"flink_jvm": Use(cpu_s=8.0)}
    facts = {"measured_from_us": 0, "environment": {"cores": 2}}
    busy = [
        of_run(record, Cell("kafka", "exactly-once", "a", rate="max"), uses, {**facts, **until}, SPLIT)
        for until in ({}, {"measured_until_us": 0}, {"measured_until_us": 5_000_000})
    ]
    assert [limit and limit.cores_busy for limit in busy] == [0.4, 0.4, 0.8]


@pytest.mark.parametrize(("late_ms", "part"), [((5.0, 120.0), "generator 2 of 2"), ((120.0, 500.0), "generator 2 of 2"),
                                               ((101.0, 3.0), "generator 1 of 2"), ((99.0, 100.0), None)])  # fmt: skip
def test_one_late_generator_of_several_is_the_bottleneck(late_ms: tuple[float, float], part: str | None) -> None:
    """A generator's own sessions are late, though few of all events are.

    Over all events it may be late for less than one in a hundred.
    """
    end: Any = SimpleNamespace(items=({"t_us": 10_000_000, "event": "drained"},))
    lines = tuple(SimpleNamespace(items=({"summary": {"lateness_ms": {"p99": ms, "max": ms}}},)) for ms in late_ms)
    record: Any = SimpleNamespace(timeline=end, load_status=lines, ledger=NO_EVENTS, plan=SimpleNamespace(started_us=0))
    cell = Cell("kafka", "exactly-once", "two-phase", generators=2)
    limit = of_run(record, cell, IDLE, {"measured_from_us": 0, "environment": {"cores": 2}}, SPLIT)
    assert limit is not None
    assert (limit.limit, limit.part) == (("generator", part) if part else ("batch", "executors"))


@pytest.mark.parametrize(("full_s", "waited"), [(None, False), (0.0, False), (1.0, False), (2.0, True), (30.0, True)])
def test_a_full_queue_explains_lateness_of_its_length(full_s: float | None, waited: bool) -> None:
    section = {"lateness_ms": {"p99": 4_000.0}, "queue_full_s": full_s}
    assert latest(section) == Late("the generator", 4_000.0, waited)
    assert latest({"processes": [{"lateness_ms": {"p99": 1.0}}, section]}) == Late("generator 2 of 2", 4_000.0, waited)
