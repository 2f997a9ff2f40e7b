"""A start without markers asks whether the open batch's rows are in the output.

It restores markers by the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE, NO_BATCH, OVERWRITTEN, Holder, Mark, Sink, Support, Written
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Identity, Journal, open_journal
from oncebench.delivery.starts.gaps import Gap, Gaps
from oncebench.delivery.starts.marks import Marks
from oncebench.delivery.starts.places import Places
from oncebench.jobs.output import OutputChecks, Target
from oncebench.jobs.start import start_sink
from oncebench.sinks.registry import SINKS
from tests.unit.pipeline.test_positions import checkpoint


class Sunk(Sink):
    """A sink with markers in memory."""

    partitions = 2

    def __init__(self, marks: dict[int, Mark], identity: str = "one") -> None:
        self.found, self.named = marks, identity
        self.decided: Sequence[Mapping[str, Any]] = ()

    def start(self, _support: Support, _generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        self.decided = decided

    def marks(self) -> dict[int, Mark]:
        return self.found

    def identity(self) -> dict[str, str]:
        return {"table": self.named}

    def restore_marks(self, batches: Any) -> None:
        self.found |= {partition: Mark(batch, 0, None) for partition, batch in batches.items()}


class Job:
    """A checkpoint whose batch 0 is finished and whose batch 1 may be open."""

    def __init__(self, folder: Path, variant: str, opened: bool = True, noted: bool = True) -> None:
        self.path = folder / "c"
        self.target = Target(SINKS["kafka"], Support(EXACTLY_ONCE, variant, ""), "orders", "t", self.path)
        self.journal()  # before there are batches
        checkpoint(self.path, {"0": 5}, {"0": 9}, done=0 if opened else 1)
        if noted:
            Marks(self.journal().folder).note_first({0, 1})

    def journal(self) -> Journal:
        return open_journal(self.path, Identity("orders", "kafka", EXACTLY_ONCE, self.target.support.variant, 2))

    def start(self, sink: Sunk, accept_gap: str | None = None) -> list[Gap]:
        """Starts the sink; returns the losses that this start has accepted."""
        journal = self.journal()
        gaps = Gaps(journal.folder, accept_gap)
        started = OutputChecks(self.target, journal, gaps, Places(journal.folder))
        started.before_sink(sink)
        started.after_sink(sink)
        started.record(sink)
        return gaps.new

    def refusal(self, sink: Sunk, accept_gap: str | None = None) -> str:
        with pytest.raises(RefusedStart) as refused:
            self.start(sink, accept_gap)
        return str(refused.value)


LOST = "output/0:none..-1,output/1:none..-1"


@pytest.mark.parametrize("found", [{}, {0: Mark(OVERWRITTEN, 0, None)}])
@pytest.mark.parametrize(("answer", "restored"), [("written", 1), ("missing", NO_BATCH)])
def test_an_open_batch_without_markers_is_restored_as_the_operator_answers(
    tmp_path: Path, found: dict[int, Mark], answer: str, restored: int
) -> None:
    job, sink = Job(tmp_path, "idempotent"), Sunk(dict(found))
    said = job.refusal(sink)
    assert f"Its input ends at {job.path}/offsets/1, and begins where the file before ends." in said
    assert "If only some of its rows are there, take a new checkpoint, sink_id and output." in said
    assert f"as accept_gap or --accept-gap: {LOST},open/1:written If none is there" in said
    assert said.endswith(f": {LOST},open/1:missing")
    assert "found no such loss" not in job.refusal(sink, LOST)
    assert job.start(sink, f"{LOST},open/1:{answer}") == [Gap(f"{LOST},open/1:{answer}", 1)]
    assert {p: mark.batch for p, mark in sink.found.items()} == {0: restored, 1: restored}
    assert job.start(sink) == [], "the next start finds the markers"


@pytest.mark.parametrize(("variant", "decided"), [("two-phase", False), ("idempotent", None)])
def test_nothing_is_asked_about_a_batch_that_cannot_be_in_the_output(
    tmp_path: Path, variant: str, decided: bool | None
) -> None:
    job = Job(tmp_path, variant, opened=decided is not None)
    assert job.refusal(Sunk({})).endswith(f": {LOST}")


def test_a_decided_batch_without_markers_is_asked_about(tmp_path: Path) -> None:
    job = Job(tmp_path, "two-phase")
    job.journal().decide(1, 0, {"partitions": []})
    assert job.refusal(Sunk({})).endswith(f"{LOST},open/1:missing")


def test_an_open_batch_is_asked_about_in_another_output_too(tmp_path: Path) -> None:
    job = Job(tmp_path, "idempotent")
    job.start(Sunk({0: Mark(0, 1, 0), 1: Mark(0, 1, 0)}))
    other = Sunk({}, "two")
    text = job.refusal(other).rsplit(": ", 1)[1]
    assert text == "output/table:one..two"
    said = job.refusal(other, text)
    assert said.endswith(",open/1:missing")
    job.start(other, said.rsplit(": ", 1)[1])
    assert {p: mark.batch for p, mark in other.found.items()} == {0: NO_BATCH, 1: NO_BATCH}


def test_an_accepted_output_that_has_markers_of_this_job_is_compared_with_them(tmp_path: Path) -> None:
    """An upgraded server has another identity and every marker.

    An older copy lacks the newest ones.
    """
    job = Job(tmp_path, "idempotent", opened=False)
    there = {p: Mark(1, 1, 0) for p in (0, 1)}
    job.start(Sunk(dict(there)))
    Marks(job.journal().folder).note_batch(1, [Written(p, 1, 0) for p in (0, 1)], (), False)
    assert job.start(Sunk(dict(there), "two"), "output/table:one..two") == [Gap("output/table:one..two", None)]
    older = Sunk({0: Mark(1, 1, 0), 1: Mark(0, 1, 0)}, "three")
    said = job.refusal(older, "output/table:two..three")
    assert said.endswith(": output/1:0..1")
    job.start(older, "output/1:0..1")
    assert job.start(older) == []


def test_an_accepted_output_that_a_copy_has_written_is_refused(tmp_path: Path) -> None:
    class Held(Sunk):
        def holder(self) -> Holder:
            return Holder.of(self.found, 0)

    job = Job(tmp_path, "idempotent", opened=False)
    job.start(Sunk({p: Mark(1, 1, 0) for p in (0, 1)}))
    copied = Held({p: Mark(1, 1, 0, "unknown") for p in (0, 1)}, "two")
    assert job.refusal(copied, "output/table:one..two").endswith(": output/driver:unknown")


def test_the_first_start_makes_a_marker_for_each_partition(tmp_path: Path) -> None:
    job, sink = Job(tmp_path, "idempotent", noted=False), Sunk({1: Mark(0, 4, 0)})
    job.start(sink)
    assert {p: mark.batch for p, mark in sink.found.items()} == {0: NO_BATCH, 1: 0}
    del sink.found[0]
    assert "partition 0: no marker is there, and one was made at the first start" in job.refusal(sink)


@pytest.mark.parametrize("opened", [True, False])
def test_a_sink_learns_whether_spark_has_finished_the_newest_decision(tmp_path: Path, opened: bool) -> None:
    job = Job(tmp_path, "two-phase", opened)
    prepared = {"partition": 0, "rows": 1, "digest": "", "prepared": {"name": "x"}}
    job.journal().decide(1, 0, {"partitions": [prepared]})
    sink, journal = Sunk({p: Mark(1, 1, None) for p in (0, 1)}), job.journal()
    start_sink(
        sink, job.target, journal, OutputChecks(job.target, journal, Gaps(journal.folder, None), Places(journal.folder))
    )
    assert sink.decided == [{"name": "x", "batch": 1, "partition": 0, "finished": not opened}]


class Older(OutputChecks):
    """Comparisons that ask nothing about markers, as for a sink without them."""

    def after_sink(self, _sink: Sink) -> None:
        pytest.fail("a start with an older checkpoint goes on")


@pytest.mark.parametrize(("opened", "variant"), [(True, "idempotent"), (False, "idempotent"), (True, "two-phase")])
def test_a_sink_that_names_no_holder_is_compared_with_the_checkpoint(
    tmp_path: Path, opened: bool, variant: str
) -> None:
    job = Job(tmp_path, variant, opened)
    sink, journal = Sunk({0: Mark(1, 1, 0), 1: Mark(2, 1, 0)}), job.journal()
    checks = Older(job.target, journal, Gaps(journal.folder, None), Places(journal.folder))
    with pytest.raises(RefusedStart, match=r"^the sink holds batch 2 of sink_id 'orders', but .* no batch after 1: "):
        start_sink(sink, job.target, journal, checks)


def test_an_open_batch_that_cannot_be_compared_is_accepted_by_its_own_text(tmp_path: Path) -> None:
    class Vacuumed(Sunk):
        def incomparable(self) -> str:
            return "The rows of batch 1 are gone."

    job, sink = Job(tmp_path, "idempotent"), Vacuumed({0: Mark(1, 0, None), 1: Mark(1, 0, None)})
    said = job.refusal(sink)
    assert said.startswith("The rows of batch 1 are gone. If query, settings and input are those of its first run")
    assert said.endswith(": open/1:uncompared")
    (accepted,) = job.start(sink, "open/1:uncompared")
    assert accepted == Gap("open/1:uncompared", 1)
    assert Gaps(job.journal().folder, None).changed(1), "the replay is not compared"
    assert job.start(sink) == [], "a start that died before the replay is repeated"


def test_a_batch_after_the_open_one_is_not_asked_for_a_comparison(tmp_path: Path) -> None:
    class Later(Sunk):
        def incomparable(self) -> str:
            return "The rows of batch 2 are gone."

    job = Job(tmp_path, "idempotent")
    assert "uncompared" not in str(job.start(Later({0: Mark(2, 0, None), 1: Mark(2, 0, None)})))
