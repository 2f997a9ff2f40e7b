"""A price tells what a batch takes, also where the machine is busy whatever it takes."""

from typing import Any

import pytest

from oncebench.reports.metrics import BY_NAME, figure

BY_MILLION = ("cpu_s", "written_mb", "checkpoint_mb")


def measured(batch_ms: float = 500.0, **config: Any) -> dict[str, Any]:
    """A thousand events a batch."""
    return {
        "cell": {"sink": "kafka", "delivery": "exactly-once", "variant": "two-phase"},
        "verdict": "kept",
        "config": config,
        "batches": {"trigger_ms": batch_ms},
        "checkpoint": {"per_million_events": {"bytes": 5e6}, "per_batch": {"bytes": 5e3}},
        "cpu_s_per_million_events": 400.0,
        "price": {"written_bytes": 7e8},
    }


@pytest.mark.parametrize("name", BY_MILLION)
def test_what_a_million_events_take_is_told_only_where_batches_leave_the_machine_idle(name: str) -> None:
    for always_busy in ({"trigger_ms": 0, "rate": 1000.0}, {"trigger_ms": 499, "rate": 1000.0}, {}):
        assert figure(measured(**always_busy), BY_NAME[name]) is None
    for told in ({"trigger_ms": 500, "rate": 1000.0}, {"trigger_ms": 0, "rate": "max"}):
        assert figure(measured(**told), BY_NAME[name]) is not None


def test_what_a_batch_takes_is_what_its_share_of_a_million_events_takes() -> None:
    report = measured(trigger_ms=0, rate=1000.0)
    assert figure(report, BY_NAME["cpu_ms_batch"]) == pytest.approx(400.0)
    assert figure(report, BY_NAME["written_kb_batch"]) == pytest.approx(700.0)


def test_what_a_batch_takes_is_unknown_without_batches_or_price() -> None:
    without_price = {**measured(), "cpu_s_per_million_events": None}
    without_batches = {**measured(), "checkpoint": {"per_million_events": {"bytes": 5e6}, "per_batch": None}}
    for report in (without_price, without_batches):
        assert figure(report, BY_NAME["cpu_ms_batch"]) is None


def test_only_a_load_that_has_a_plan_can_be_late_for_it() -> None:
    late = {"generator": {"lateness_ms": {"p99": 4_000.0}}, "throughput": {"events_per_s": 5_000.0}}
    flat_out = measured(trigger_ms=0, rate="max") | late
    assert figure(flat_out, BY_NAME["s_per_million"]) == pytest.approx(200.0)
    assert figure(flat_out, BY_NAME["cpu_s"]) is not None
    assert figure(flat_out | {"latency_ms": {"p50": 9_000.0}}, BY_NAME["p50_ms"]) is None, "the time in a queue"
    planned = measured(trigger_ms=0, rate=1000.0) | late
    assert figure(planned, BY_NAME["cpu_ms_batch"]) is None
