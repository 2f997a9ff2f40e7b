"""Starts with and without `input=`, one after the other: no topic is taken for another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Journal, open_journal
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.places import INPUT, OUTPUT, Places
from oncebench.jobs import KafkaInput, query
from oncebench.jobs.inputs.epochs import Epochs
from oncebench.jobs.output import Target
from oncebench.jobs.start import identity_of
from oncebench.sinks.registry import SINKS
from tests.unit.pipeline.test_positions import TOPIC, checkpoint

READS = KafkaInput(TOPIC, {"bootstrap.servers": "nowhere:1"})
UNCOMPARED = "input/cluster:c..none,input/topic_id:first..none"


class Job:
    """A checkpoint with one batch, whose topic has `topic_id` and some more records.

    Attributes:
        topic_id: of the topic now.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kind = SINKS["files-jsonl"]
        self.target = Target(kind, kind.supports[0], "orders-1", "out", self.folder)
        self.topic_id = "first"
        self.journal()
        checkpoint(folder, {"0": 50}, done=0)

    def identity(self) -> dict[str, str]:
        return {"cluster": "c", "topic_id": self.topic_id}

    def offsets(self) -> dict[str, tuple[int, int]]:
        return {"0": (0, 80)}

    def end_of_epoch(self, _partition: str, _epoch: int) -> int:
        return 40

    def start(self, reads: KafkaInput | None = None, accept_gap: str | None = None, fails: bool = False) -> None:
        journal = self.journal()
        gaps, places = Gaps(journal.folder, accept_gap), Places(journal.folder)
        with query._compared(reads, self.target, journal, gaps, places):
            if fails:
                raise RefusedStart("the sink")
        gaps.refuse_unknown()

    def journal(self) -> Journal:
        return open_journal(self.folder, identity_of(self.target, 2))

    def position(self) -> str:
        return (self.folder / "offsets" / "0").read_text().rsplit("\n", 1)[1]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(tmp_path)
    answers: Any = lambda *_: made  # noqa: E731
    monkeypatch.setattr(query, "InputTopic", answers)
    return made


def test_a_start_that_stops_to_compare_the_input_is_refused(job: Job) -> None:
    job.start()
    job.start(READS)
    with pytest.raises(RefusedStart, match=rf"has no input=\. .*Give input= again.*: {UNCOMPARED}$"):
        job.start()
    job.start(READS)


def test_a_topic_that_was_read_uncompared_is_not_read_again(job: Job) -> None:
    job.start(READS)
    Epochs(job.journal().folder).note({"0": 50}, {"0": 4})
    job.topic_id = "second"
    job.start(accept_gap=UNCOMPARED)  # reads the second topic from offset 50 on
    before = job.position()
    job.start(READS)
    assert job.position() == before
    job.topic_id = "third"
    with pytest.raises(RefusedStart, match=r"input/topic_id:second\.\.third$"):
        job.start(READS)


def test_a_refused_start_forgets_no_input(job: Job) -> None:
    job.start(READS)
    Places(job.journal().folder).record(OUTPUT, {"table": "1"})
    with pytest.raises(RefusedStart, match="the sink"):
        job.start(accept_gap=UNCOMPARED, fails=True)
    assert Places(job.journal().folder).differs(INPUT, {}) == UNCOMPARED
    job.start()  # the acceptance stays
    left = Places(job.journal().folder)
    assert left.differs(INPUT, {}) == ""
    assert left.differs(OUTPUT, {}) == "output/table:1..none"
