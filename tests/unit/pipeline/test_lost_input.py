"""Input that is replaced while the job runs.

The message does not promise that nothing was read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import open_journal
from oncebench.delivery.starts.places import INPUT, Places
from oncebench.jobs.output import Target
from oncebench.jobs.start import identity_of
from oncebench.sinks.registry import SINKS
from pipeline.starting.checks import StartChecks
from tests.unit.pipeline.test_pipeline_config import config
from tests.unit.pipeline.test_positions import checkpoint


class Topic:
    """Kafka's answers about the input topic.

    While it answers about epochs, Spark commits one more batch.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint

    def identity(self) -> Mapping[str, str]:
        return {"cluster": "c", "topic_id": "new"}

    def leader_epochs(self, _partitions: Iterable[str]) -> dict[str, int]:
        (self.checkpoint / "commits" / "1").write_text("v1\n{}")
        return {"0": 4}

    def stable_ends(self, _partitions: Iterable[str]) -> dict[str, tuple[int, int]]:
        return {}


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartChecks:
    made = config(tmp_path)
    kind = SINKS["kafka"]
    target = Target(kind, kind.supports[0], made.sink_id, "out", made.checkpoint)
    journal = open_journal(made.checkpoint, identity_of(target, made.partitions))
    Places(journal.folder).record(INPUT, {"cluster": "c", "topic_id": "old"})
    found = StartChecks(made, target, journal)
    monkeypatch.setattr(found.input, "topic", Topic(made.checkpoint))
    return found


def test_a_start_says_that_nothing_was_read_or_written(checks: StartChecks) -> None:
    with pytest.raises(RefusedStart, match=r"lead to another cluster\. Nothing was read or written\. Name"):
        checks.input.check()


def test_a_running_job_does_not_say_it(checks: StartChecks) -> None:
    for lost in (checks.lost_input(), checks.other_input()):
        assert "lead to another cluster. The job stops. Name the right cluster" in str(lost)
        assert "input/topic_id:old..new" in str(lost)


def test_a_position_is_taken_before_the_epoch_of_its_leader(checks: StartChecks, tmp_path: Path) -> None:
    """Otherwise records of a later epoch could be before the position.

    Then a sound log would look cut.
    """
    made = config(tmp_path)
    checkpoint(made.checkpoint, {"0": 50}, {"0": 90}, done=0)
    checks.watch_input()
    asked: list[tuple[str, int]] = []

    def end_of(partition: str, epoch: int) -> int:
        asked.append((partition, epoch))
        return 49

    assert [(gone.first, gone.end) for gone in checks.input.epochs.cut(end_of)] == [(49, 50)]
    assert asked == [("0", 4)]
