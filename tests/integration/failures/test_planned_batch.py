"""The advice for a batch that is planned already is true.

A limit does not make the batch smaller. Planning it anew does.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from oncebench.delivery.failures import deaths
from oncebench.jobs.checkpoint import last_batch
from oncebench.lab.lab import Lab
from oncebench.processes.child import tail
from pipeline.config import PipelineConfig
from tests.pipelines import Fixture, every_row, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]
SESSIONS = [f"s{number}" for number in range(40)]


def ended(fixture: Fixture, config: PipelineConfig) -> tuple[int | None, str]:
    """The exit code and the last words of an attempt that ends by itself."""
    with fixture.pipeline(config) as supervisor:
        supervisor.start()
        child = supervisor.child
        assert child is not None
        wait_for("its end", lambda: not child.alive)
        child.kill_session()
        return child.returncode, supervisor.last_words()


def test_a_batch_that_takes_longer_than_its_transactions_says_what_helps_this_batch(lab: Lab, tmp_path: Path) -> None:
    fixture = Fixture(lab, tmp_path)
    fixture.send(record for name in SESSIONS for record in session(name))
    # The worker stops for longer than its transaction may last, between two halves of its rows. A second worker might
    # die before it stops, and would then stop in one more attempt.
    slow = ["mid-write:stop-worker:6@batch=0"] * deaths.SUSPICIOUS
    limits = {"transaction_timeout_ms": 3000, "max_events_per_batch": 5000}
    config = fixture.config("exactly-once", "two-phase", *slow, partitions=1, **limits)
    with fixture.pipeline(config) as supervisor:
        supervisor.start()
        child = supervisor.child
        assert child is not None

        def has_died(least: int) -> bool:
            return len(said()) >= least

        def said() -> list[str]:
            return [
                line for line in child.log.read_text().splitlines() if line.startswith("stopped: TransactionTooSlow")
            ]

        for number in range(1, deaths.SUSPICIOUS + 1):
            wait_for(f"death {number}", partial(has_died, number), [supervisor])
        wait_for("all rows", lambda: fixture.visible() == every_row(*SESSIONS), [supervisor])
    for words in ("Kafka aborts a transaction after transaction_timeout_ms, here 3000",
                  f"Batch 0 is planned: its end is in {config.checkpoint}/offsets/0",
                  "max_events_per_batch makes only the batches after it smaller",
                  "remove from the checkpoint offsets/0, offsets/.0.crc and the folder state"):  # fmt: skip
        assert words in said()[0]
    assert "Batch 0 has died 3 times by this error" in said()[2]
    assert "has died" not in said()[1]
    assert not (config.checkpoint / "journal" / deaths.NAME).exists(), "the batch got on"


@pytest.mark.parametrize("batch", [0, 1])
def test_an_undecided_batch_that_is_planned_again_with_a_limit_is_written_once(
    lab: Lab, tmp_path: Path, batch: int
) -> None:
    fixture = Fixture(lab, tmp_path)
    fixture.send(record for name in SESSIONS for record in session(name))
    fault, limit = f"before-decision:kill@batch={batch}", 2000 if batch else None
    config = fixture.config("exactly-once", "two-phase", fault, max_events_per_batch=limit)
    code, _ = ended(fixture, config)
    assert code == -9
    for name in (str(batch), f".{batch}.crc"):  # as the message says
        (config.checkpoint / "offsets" / name).unlink(missing_ok=True)
    if batch == 0:
        shutil.rmtree(config.checkpoint / "state")
    ends = fixture.input_ends()
    with fixture.pipeline(replace(config, faults=(), max_events_per_batch=700)) as supervisor:
        supervisor.start()
        wait_for("all events", lambda: position(config.record) == ends, [supervisor])
        child = supervisor.child
        assert child is not None
        assert supervisor.restarts == 0, tail(child.log)
    assert last_batch(config.checkpoint) > batch + 1
    assert fixture.visible() == every_row(*SESSIONS)
