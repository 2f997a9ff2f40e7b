"""Input that is replaced while the job runs: the message does not promise that nothing was read or written."""

from __future__ import annotations

from collections.abc import Mapping
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


class Topic:
    """Kafka's answer about the input topic."""

    def identity(self) -> Mapping[str, str]:
        return {"cluster": "c", "topic_id": "new"}


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartChecks:
    made = config(tmp_path)
    kind = SINKS["kafka"]
    target = Target(kind, kind.supports[0], made.sink_id, "out", made.checkpoint)
    journal = open_journal(made.checkpoint, identity_of(target, made.partitions))
    Places(journal.folder).record(INPUT, {"cluster": "c", "topic_id": "old"})
    found = StartChecks(made, target, journal)
    monkeypatch.setattr(found.input, "topic", Topic())
    return found


def test_a_start_says_that_nothing_was_read_or_written(checks: StartChecks) -> None:
    with pytest.raises(RefusedStart, match=r"lead to another cluster\. Nothing was read or written\. Name"):
        checks.input.check()


def test_a_running_job_does_not_say_it(checks: StartChecks) -> None:
    for lost in (checks.lost_input(), checks.other_input()):
        assert "lead to another cluster. The job stops. Name the right cluster" in str(lost)
        assert "input/topic_id:old..new" in str(lost)
