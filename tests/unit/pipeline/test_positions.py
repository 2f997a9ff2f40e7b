"""The positions of Spark's checkpoint, compared with the offsets of the topic.

They are moved over an accepted loss.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.jobs.checkpoint import begun_at
from oncebench.jobs.inputs.positions import Position, Range, from_the_beginning, lost, move, moved, position, rewound

TOPIC = "in"


def checkpoint(folder: Path, *ends: dict[str, int], done: int, first: dict[str, int] | None = None) -> Path:
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "sources" / "0" / "0").write_text(f"\0v1\n{json.dumps({TOPIC: first or {'0': 0}})}")
    for batch, each in enumerate(ends):
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":1}}\n{json.dumps({TOPIC: each})}')
        (folder / "offsets" / f".{batch}.crc").write_text("of the old text")
        if batch <= done:
            (folder / "commits" / str(batch)).write_text("v1\n{}")
    return folder


def test_a_query_that_never_planned_a_batch_goes_on_where_its_source_began(tmp_path: Path) -> None:
    assert position(tmp_path / "none", TOPIC) is None
    assert position(checkpoint(tmp_path / "a", done=-1, first={"0": 3}), TOPIC) == Position({"0": 3}, {"0": 3})


def test_an_open_batch_begins_where_the_batch_before_it_ended(tmp_path: Path) -> None:
    ends = {"0": 5}, {"0": 9, "1": 2}
    assert position(checkpoint(tmp_path / "a", *ends, done=1), TOPIC) == Position(ends[1], ends[1])
    assert position(checkpoint(tmp_path / "b", *ends, done=0), TOPIC) == Position({"0": 5, "1": 0}, ends[1])
    first = checkpoint(tmp_path / "c", ends[0], done=-1, first={"0": 3})
    assert position(first, TOPIC) == Position({"0": 3}, {"0": 5})


def test_a_torn_entry_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {"0": 5}, done=0)
    (folder / "offsets" / "0").write_text('v1\n{"batchTi')
    with pytest.raises(RefusedStart, match="damaged"):
        position(folder, TOPIC)


@pytest.mark.parametrize(
    ("starts", "ends", "there", "expected"),
    [
        ({"0": 5}, {"0": 5}, {"0": (0, 5)}, []),
        ({"0": 5}, {"0": 5}, {"0": (5, 5), "1": (0, 9)}, []),
        ({"0": 5}, {"0": 9}, {"0": (5, 9)}, []),
        ({"0": 5}, {"0": 5}, {"0": (5, 5), "1": (3, 9)}, ["input/1:0..2"]),
        ({"0": 5}, {"0": 5}, {"0": (6, 9)}, ["input/0:5..5"]),
        ({"0": 5}, {"0": 9}, {"0": (7, 20)}, ["input/0:5..6"]),
        ({"0": 5}, {"0": 9}, {"0": (12, 20)}, ["input/0:5..11"]),
        ({"0": 5}, {"0": 5}, {"0": (0, 3)}, ["input/0:3..4"]),
        ({"0": 5}, {"0": 9}, {"0": (0, 7)}, ["input/0:7..8"]),
        ({"0": 5}, {"0": 9}, {"0": (6, 7)}, ["input/0:5..5", "input/0:7..8"]),
        ({"0": 5, "10": 2, "9": 1}, {"0": 5, "10": 2, "9": 1}, {"0": (0, 5)}, ["input/9:0..0", "input/10:0..1"]),
    ],
)
def test_the_ranges_that_are_gone_are_named_exactly(
    starts: dict[str, int], ends: dict[str, int], there: dict[str, tuple[int, int]], expected: list[str]
) -> None:
    at = Position(starts, ends)
    assert list(map(str, lost(at, there))) == expected
    after = moved(at, there)
    assert lost(after, there) == []
    assert all(start <= after.ends[p] for p, start in after.starts.items())
    if not expected:
        assert after == at


def test_another_topic_is_read_from_its_beginning_and_gives_an_open_batch_nothing() -> None:
    there = {"0": (2, 20), "1": (0, 7)}
    assert from_the_beginning(Position({"0": 5}, {"0": 9}), there) == Position({"0": 2}, {"0": 2})


def test_a_move_changes_the_offsets_and_nothing_else(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {"0": 3}, {"0": 5}, {"0": 9}, done=1)
    move(folder, TOPIC, Position({"0": 7}, {"0": 9}))
    assert position(folder, TOPIC) == Position({"0": 7}, {"0": 9})
    assert (folder / "offsets" / "1").read_text() == 'v1\n{"batchTimestampMs":1}\n{"in":{"0":7}}'
    assert json.loads((folder / "offsets" / "0").read_text().splitlines()[-1]) == {TOPIC: {"0": 3}}
    assert not (folder / "offsets" / ".1.crc").exists(), "it is the checksum of the old text"
    assert (folder / "offsets" / ".0.crc").exists()


def test_a_move_before_the_first_batch_keeps_the_form_of_sparks_entry(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {"0": 3}, done=-1)
    move(folder, TOPIC, Position({"0": 2}, {"0": 3}))
    assert (folder / "sources" / "0" / "0").read_text() == '\0v1\n{"in":{"0":2}}'
    assert position(folder, TOPIC) == Position({"0": 2}, {"0": 3})


def test_an_added_partition_whose_first_records_are_gone_begins_with_its_first_record() -> None:
    at = Position({"0": 5}, {"0": 9})
    assert moved(at, {"0": (0, 9), "1": (3, 9), "2": (0, 4)}) == Position({"0": 5, "1": 3}, {"0": 9, "1": 3})


def test_cut_partitions_are_read_again_from_the_cut() -> None:
    at = Position({"0": 5, "1": 7}, {"0": 9, "1": 8})
    assert rewound(at, [Range("0", 4, 5, "")]) == Position({"0": 4, "1": 7}, {"0": 4, "1": 8})


def second_form(folder: Path, last: str) -> Path:
    found = checkpoint(folder, {"0": 5}, done=0)
    text = f'v2\n{{"batchTimestampMs":1}}\n{last}'
    (found / "offsets" / "0").write_text(text)
    (found / "offsets" / "0.crc").write_text("of the old text")
    return found


def test_the_second_form_of_sparks_offset_log_is_read_and_kept(tmp_path: Path) -> None:
    found = second_form(tmp_path / "a", f"0:{json.dumps({TOPIC: {'0': 5}})}")
    assert position(found, TOPIC) == Position({"0": 5}, {"0": 5})
    assert begun_at(found, 0) == 0.001
    move(found, TOPIC, Position({"0": 7}, {"0": 7}))
    assert (found / "offsets" / "0").read_text() == 'v2\n{"batchTimestampMs":1}\n0:{"in":{"0":7}}'
    assert not (found / "offsets" / "0.crc").exists()
    assert position(second_form(tmp_path / "b", "0:-"), TOPIC) == Position({}, {})


def test_an_unknown_form_of_sparks_offset_log_is_refused_by_name(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {"0": 5}, done=0)
    (folder / "offsets" / "0").write_text("v3\n{}\n{}")
    with pytest.raises(RefusedStart, match="has the form v3, and this job reads v1 and v2"):
        position(folder, TOPIC)
