"""SIGTERM ends a healthy pipeline with exit code 0, also in the middle of a batch.

This holds for every kind of writer.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from oncebench.lab.lab import Lab
from oncebench.servers.kafka.broker import KafkaBroker
from pipeline import progress
from tests.pipelines import Fixture, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.parametrize(
    ("guarantee", "variant", "faults"),
    [
        pytest.param("at-least-once", "native", ("after-commit@batch=999",), marks=pytest.mark.slow),
        pytest.param("at-least-once", "native", (), marks=pytest.mark.slow),
        # `failures/test_signals.py` stops this one too, by a signal to the whole job.
        pytest.param("exactly-once", "two-phase", (), marks=pytest.mark.slow),
    ],
    ids=["native in foreachBatch", "native stream", "two-phase"],
)
def test_a_stop_while_batches_run_exits_with_0(
    lab: Lab, tmp_path: Path, guarantee: str, variant: str, faults: tuple[str, ...]
) -> None:
    fixture = Fixture(lab, tmp_path)
    config = fixture.config(guarantee, variant, *faults, max_events_per_batch=40)
    fixture.send(record for number in range(60) for record in session(f"s{number}"))
    with fixture.pipeline(config) as supervisor:
        supervisor.start()
        wait_for("a first row", lambda: bool(fixture.visible()), [supervisor])
        child = supervisor.child
        assert child is not None
        time.sleep(0.3)  # most likely in one of the many batches that are still to come
        child.stop_gently(60.0)
        assert child.returncode == 0, (config.record / "logs" / "pipeline.log").read_text()[-2000:]


def test_a_stop_waits_no_longer_than_the_answer_to_its_last_position(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_ANSWER_S", 600.0)
    topic = kafka.fresh_topic("stopped", 1)
    monitoring = progress.Monitoring({"bootstrap.servers": kafka.bootstrap_servers}, f"{topic}.position", topic)
    monitoring.commit({"0": 0})
    began = time.monotonic()
    monitoring.close()
    assert time.monotonic() - began < 300, "the whole wait, although the broker has answered"
