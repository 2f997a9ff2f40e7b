"""A start finds what changed since the last one.

It continues only with the loss that was accepted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.delivery.contract import OVERWRITTEN, WHOLE_BATCH, Mark, Written
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Identity, open_journal
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.marks import Marks, missing, missing_text
from oncebench.delivery.starts.places import INPUT, OUTPUT, Places

HOUR_S = 3600.0


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return open_journal(tmp_path, Identity("orders", "kafka", "exactly-once", "two-phase", 2)).folder


def test_a_loss_is_refused_with_the_text_that_accepts_it(journal: Path) -> None:
    with pytest.raises(RefusedStart, match=r"^it is gone\. .*accept_gap.*: input/0:1\.\.2$"):
        Gaps(journal, None).accept("input/0:1..2", "it is gone.")
    accepting = Gaps(journal, " input/0:1..2\n")
    accepting.accept("input/0:1..2", "it is gone.", batch=7)
    assert accepting.changed(7)
    assert not accepting.changed(6)
    assert [gap.text for gap in accepting.new] == ["input/0:1..2"]


def test_a_loss_that_has_grown_is_refused_again(journal: Path) -> None:
    with pytest.raises(RefusedStart, match=r"input/0:1\.\.3$"):
        Gaps(journal, "input/0:1..2").accept("input/0:1..3", "it is gone.")


def test_a_start_that_died_after_an_acceptance_is_repeated_without_it(journal: Path) -> None:
    Gaps(journal, "input/0:1..2").accept("input/0:1..2", "it is gone.", batch=7)
    again = Gaps(journal, None)
    again.accept("input/0:1..2", "it is gone.")
    assert again.changed(7)
    assert again.new == []
    Gaps(journal, "output/0:3..4").accept("output/0:3..4", "it is gone.")
    with pytest.raises(RefusedStart):
        Gaps(journal, None).accept("input/0:1..2", "it came back, and is gone again.")
    assert sorted(path.name for path in journal.glob("gap-*")) == ["gap-000000.json", "gap-000001.json"]


def test_a_text_that_fits_no_loss_is_refused_and_an_accepted_one_may_stay_in_the_configuration(journal: Path) -> None:
    with pytest.raises(RefusedStart, match="found no such loss"):
        Gaps(journal, "input/0:1..2").refuse_unknown()
    Gaps(journal, "input/0:1..2").accept("input/0:1..2", "it is gone.")
    Gaps(journal, "input/0:1..2").refuse_unknown()
    Gaps(journal, None).refuse_unknown()


def test_a_damaged_acceptance_is_refused(journal: Path) -> None:
    (journal / "gap-000000.json").write_text('{"text": "inp')
    with pytest.raises(RefusedStart, match=r"gap-000000\.json is damaged"):
        Gaps(journal, None)


def test_a_place_with_another_identity_is_refused_with_both_identities(journal: Path) -> None:
    Places(journal).record(INPUT, {"cluster": "c", "topic_id": "t"})
    same = Places(journal)
    assert same.known
    assert not same.compare(INPUT, {"cluster": "c", "topic_id": "t"}, "topic", Gaps(journal, None))
    for found, text in (
        ({"cluster": "c", "topic_id": "u"}, r"input/topic_id:t\.\.u"),
        ({"cluster": "d", "topic_id": "u"}, r"input/cluster:c\.\.d,input/topic_id:t\.\.u"),
        ({}, r"input/cluster:c\.\.none,input/topic_id:t\.\.none"),
    ):
        with pytest.raises(RefusedStart, match=f": {text}$"):
            same.compare(INPUT, found, "topic", Gaps(journal, None))


def test_a_part_that_cannot_be_read_any_more_is_no_difference_and_not_forgotten(journal: Path) -> None:
    Places(journal).record(OUTPUT, {"system": "7", "table": "1"})
    places = Places(journal)
    assert not places.compare(OUTPUT, {"table": "1"}, "table", Gaps(journal, None))
    places.record(OUTPUT, {"table": "1"})
    again = Places(journal)
    assert again.differs(OUTPUT, {"system": "8", "table": "1"}) == "output/system:7..8"
    assert again.differs(OUTPUT, {"table": "2"}) == "output/system:7..none,output/table:1..2"
    again.record(OUTPUT, {"table": "2"})
    assert not Places(journal).differs(OUTPUT, {"system": "8", "table": "2"})


def test_a_place_that_was_accepted_is_recorded_in_place_of_the_other(journal: Path) -> None:
    Places(journal).record(OUTPUT, {"table": "1"})
    places = Places(journal)
    assert places.compare(OUTPUT, {"table": "2"}, "table", Gaps(journal, "output/table:1..2"))
    places.record(OUTPUT, {"table": "2"})
    assert not Places(journal).compare(OUTPUT, {"table": "2"}, "table", Gaps(journal, None))


def test_a_checkpoint_without_recorded_places_is_continued_and_gets_them(journal: Path) -> None:
    older = Places(journal)
    assert not older.known
    assert not older.compare(INPUT, {"topic_id": "t"}, "topic", Gaps(journal, None))
    older.record(INPUT, {"topic_id": "t"})
    older.record(OUTPUT, {})
    assert Places(journal).known
    assert not Places(journal).compare(OUTPUT, {"table": "1"}, "table", Gaps(journal, None))


def wrote(marks: Marks, batch: int, *rows: int, whole: bool = False, dropped: tuple[int, ...] = ()) -> None:
    marks.note_batch(batch, [Written(p, count, 0) for p, count in enumerate(rows)], dropped, whole)


def marks_at(*batches: int | None) -> dict[int, Mark]:
    return {p: Mark(batch, 1, 0) for p, batch in enumerate(batches) if batch is not None}


def test_a_sink_without_the_newest_committed_batch_of_a_partition_is_older(journal: Path) -> None:
    noting = Marks(journal)
    for batch, rows in ((4, (3, 3)), (5, (3, 0)), (6, (3, 0)), (7, (0, 0))):
        wrote(noting, batch, *rows)
    after = Marks(journal)
    assert after.missing(marks_at(6, 4), 7, None) == {}
    assert after.missing(marks_at(7, 4), 7, None) == {}, "a later driver may have died before its note"
    assert after.missing(marks_at(4, 4), 7, None) == {0: (4, 6)}
    assert after.missing(marks_at(None, 3), 7, None) == {0: (None, 6), 1: (3, 4)}
    assert missing_text({0: (None, 6), 1: (3, 4)}) == "output/0:none..6,output/1:3..4"


def test_the_open_batch_may_lack_its_marker_but_the_batch_before_it_may_not(journal: Path) -> None:
    noting = Marks(journal)
    for batch in (4, 5):
        wrote(noting, batch, 3)
    wrote(noting, 5, 3)  # its replay
    assert noting.missing(marks_at(4), 4, None) == {}
    assert noting.missing(marks_at(3), 4, None) == {0: (3, 4)}


def test_a_partition_that_was_dropped_needs_no_marker(journal: Path) -> None:
    noting = Marks(journal)
    wrote(noting, 4, 3, 3, dropped=(1,))
    assert noting.missing(marks_at(4), 4, None) == {}


def test_one_marker_covers_a_whole_batch(journal: Path) -> None:
    noting = Marks(journal)
    wrote(noting, 4, 3, 3, whole=True)
    assert noting.missing({WHOLE_BATCH: Mark(4, 0, None)}, 4, None) == {}
    assert missing_text(noting.missing({}, 4, None)) == "output/all:none..4"


def test_a_marker_that_the_sink_may_have_forgotten_is_not_missed() -> None:
    noted = {0: [(4, 0.0)]}
    assert missing(noted, {}, 4, HOUR_S, now=HOUR_S + 1) == {}
    assert missing(noted, {}, 4, HOUR_S, now=HOUR_S - 1) == {0: (None, 4)}
    assert missing(noted, marks_at(3), 4, HOUR_S, now=HOUR_S + 1) == {0: (3, 4)}, "forgotten markers are gone, not old"


def test_a_marker_from_the_first_start_on_shows_that_markers_are_gone(journal: Path) -> None:
    Marks(journal).note_first({0, 1})
    after = Marks(journal)
    assert after.missing(marks_at(-1, 3), 3, None) == {}
    assert after.missing(marks_at(None, 0), -1, None) == {0: (None, -1)}
    wrote(after, 3, 5, 0)
    assert Marks(journal).missing(marks_at(3), 3, None) == {1: (None, -1)}
    assert missing({0: [(4, 0.0)]}, marks_at(-1), 4, HOUR_S, now=HOUR_S + 1) == {}, "made anew after the first expired"
    assert missing({0: [(4, 0.0)]}, marks_at(-1), 4, None, now=1.0) == {0: (-1, 4)}


def test_a_marker_that_was_overwritten_is_missing_with_and_without_a_note(journal: Path) -> None:
    overwritten = {0: Mark(OVERWRITTEN, 0, None), 1: Mark(2, 1, 0)}
    assert Marks(journal).missing(overwritten, 3, None) == {0: (None, 3)}
    noting = Marks(journal)
    wrote(noting, 2, 3, 3)
    assert noting.missing(overwritten, 3, None) == {0: (None, 2)}
    noting.note_found(overwritten, 3)
    assert Marks(journal).missing(marks_at(None, 2), 3, None) == {}


def test_a_loss_with_two_ways_to_go_on_takes_either_text_and_no_other(journal: Path) -> None:
    ways = {
        "output/0:none..1,open/2:written": "If all are there",
        "output/0:none..1,open/2:missing": "If none is there",
    }
    for asked in (None, "output/0:none..1"):
        with pytest.raises(RefusedStart, match=r"^gone\. If all are there, give .*:written If none .*open/2:missing$"):
            Gaps(journal, asked).choose("gone.", ways)
    written, _ = ways
    assert Gaps(journal, written).choose("gone.", ways, 2) == written
    again = Gaps(journal, None)
    assert again.choose("gone.", ways, 2) == written
    assert again.changed(2)


def test_markers_that_were_accepted_replace_the_notes(journal: Path) -> None:
    noting = Marks(journal)
    wrote(noting, 4, 3, 3)
    noting.note_found(marks_at(2), 4)
    assert Marks(journal).missing(marks_at(2), 4, None) == {}
    assert Marks(journal).missing(marks_at(1), 4, None) == {0: (1, 2)}


def test_a_note_that_cannot_be_written_does_not_end_the_batch(journal: Path) -> None:
    (journal / "written").write_text("")
    wrote(Marks(journal), 4, 3)
    assert Marks(journal).missing({}, 4, None) == {}


@pytest.mark.parametrize("text", ["", '{"parti', '{"partitions": {"0": [[1]]}}', "[]"])
def test_notes_that_a_power_cut_has_damaged_refuse_nothing(journal: Path, text: str) -> None:
    wrote(Marks(journal), 4, 3)
    (journal / "written" / "newest.json").write_text(text)
    assert Marks(journal).missing({}, 4, None) == {}
