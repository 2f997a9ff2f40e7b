"""An input log that was cut and has grown again: the leader epochs show it."""

from __future__ import annotations

from pathlib import Path

from oncebench.jobs.inputs.epochs import Epochs
from oncebench.jobs.inputs.positions import Range


def ends(*known: tuple[str, int, int]) -> dict[tuple[str, int], int]:
    """Partition, epoch -> where its records end."""
    return {(partition, epoch): end for partition, epoch, end in known}


def cut(folder: Path, known: dict[tuple[str, int], int]) -> list[Range]:
    return Epochs(folder).cut(lambda partition, epoch: known[partition, epoch])


def test_a_cut_below_the_position_is_found_and_named(tmp_path: Path) -> None:
    Epochs(tmp_path).note({"0": 1200, "1": 50}, {"0": 4, "1": 4})
    (found,) = cut(tmp_path, ends(("0", 4, 1000), ("1", 4, 50)))
    assert str(found) == "input/0:1000..1199"
    assert "its log was cut at 1000 after they were read (leader epoch 4)" in found.why


def test_new_leaders_and_new_records_are_no_cut(tmp_path: Path) -> None:
    Epochs(tmp_path).note({"0": 1200}, {"0": 4})
    assert cut(tmp_path, ends(("0", 4, 1200))) == []
    assert cut(tmp_path, ends(("0", 4, 5000))) == []
    assert cut(tmp_path, ends(("0", 4, -1))) == [], "the broker does not know the epoch"


def test_a_partition_without_a_leader_epoch_is_not_noted(tmp_path: Path) -> None:
    Epochs(tmp_path).note({"0": 1200}, {"0": -1})
    assert cut(tmp_path, {}) == []


def test_a_damaged_or_forgotten_note_refuses_nothing(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path)
    epochs.note({"0": 1200}, {"0": 4})
    epochs.forget()
    assert cut(tmp_path, {}) == []
    (tmp_path / "read" / "epochs.json").write_text("torn")
    assert cut(tmp_path, {}) == []
