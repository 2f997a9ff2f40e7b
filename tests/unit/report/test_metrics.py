"""Metrics have a figure only where it is meaningful."""

from typing import Any

import pytest

from oncebench.report.measures.metrics import BY_NAME, cpu_ms_of_a_batch, figure

BY_MILLION = ("cpu_s", "written_mb", "checkpoint_mb")


def measured(batch_ms: float = 500.0, **config: Any) -> dict[str, Any]:
    """A thousand events a batch."""
    return {
        "cell": {"sink": "kafka", "guarantee": "exactly-once", "variant": "two-phase"},
        "verdict": "kept",
        "config": config,
        "batches": {"trigger_ms": batch_ms},
        "checkpoint": {"per_million_events": {"bytes": 5e6}, "per_batch": {"bytes": 5e3}},
        "cpu_s_per_million_events": 400.0,
        "price": {"written_bytes": 7e8},
    }


@pytest.mark.parametrize("name", BY_MILLION)
def test_a_price_needs_batches_that_leave_the_machine_idle(name: str) -> None:
    for always_busy in ({"trigger_ms": 0, "rate": 1000.0}, {"trigger_ms": 499, "rate": 1000.0}, {}):
        assert figure(measured(**always_busy), BY_NAME[name]) is None
    for reported in ({"trigger_ms": 500, "rate": 1000.0}, {"trigger_ms": 0, "rate": "max"}):
        assert figure(measured(**reported), BY_NAME[name]) is not None


def test_cpu_of_a_batch_is_its_share_of_a_million_events() -> None:
    assert cpu_ms_of_a_batch(measured(trigger_ms=0, rate=1000.0)) == pytest.approx(400.0)


@pytest.mark.parametrize(("n", "expected"), [(2000, True), (1999, False), (None, True)])
def test_a_p99_without_a_session_above_it_is_none(n: int | None, expected: bool) -> None:
    report = measured(rate=1000.0) | {"latency_ms": {"p50": 300.0, "p99": 500.0} | ({} if n is None else {"n": n})}
    assert figure(report, BY_NAME["p99_ms"]) == (500.0 if expected else None)
    assert figure(report, BY_NAME["p50_ms"]) == 300.0


@pytest.mark.parametrize(("workload", "n"), [("sessions", 2000), ("windows", 100), ("records", 100)])
def test_a_p99_needs_a_hundred_latencies_of_its_workload(workload: str, n: int) -> None:
    def p99(n: int) -> float | None:
        return figure(
            measured(rate=1000.0, workload=workload) | {"latency_ms": {"p99": 500.0, "n": n}}, BY_NAME["p99_ms"]
        )

    assert (p99(n - 1), p99(n)) == (None, 500.0)


@pytest.mark.parametrize(
    ("restart", "gap", "seen_s"),
    [(5000.0, 9000.0, 0.3), (None, 9000.0, 9.0), (None, None, 0.3)],  # killed, outlived, an older report
)
def test_recovery_of_a_surviving_pipeline_is_the_longest_silence(
    restart: float | None, gap: float | None, seen_s: float
) -> None:
    marks = {"restart": restart, "first_visible": 300.0}
    report = measured() | {"recovery": marks, "faults": [{"recovery": {"longest_gap": gap}}, {}]}
    assert figure(report, BY_NAME["recovery_s"]) == pytest.approx(seen_s)
    assert figure(measured() | {"recovery": {"first_visible": None}, "faults": []}, BY_NAME["recovery_s"]) is None


def test_cpu_of_a_batch_is_unknown_without_batches_or_price() -> None:
    without_price = {**measured(), "cpu_s_per_million_events": None}
    without_batches = {**measured(), "checkpoint": {"per_million_events": {"bytes": 5e6}, "per_batch": None}}
    for report in (without_price, without_batches):
        assert cpu_ms_of_a_batch(report) is None


def test_a_flat_out_load_is_never_late() -> None:
    late = {"generator": {"lateness_ms": {"p99": 4_000.0}}, "throughput": {"events_per_s": 5_000.0}}
    flat_out = measured(trigger_ms=0, rate="max") | late
    assert figure(flat_out, BY_NAME["s_per_million"]) == pytest.approx(200.0)
    assert figure(flat_out, BY_NAME["cpu_s"]) is not None
    assert figure(flat_out | {"latency_ms": {"p50": 9_000.0}}, BY_NAME["p50_ms"]) is None, "the time in a queue"
    planned = measured(trigger_ms=0, rate=1000.0) | late
    assert figure(planned, BY_NAME["batch_ms"]) is None
