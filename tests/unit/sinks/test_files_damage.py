"""A folder of files that is damaged or in the way: the message is right.

It names what must change, and following it is safe.
"""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.contract import AT_MOST_ONCE, NO_BATCH, Support
from oncebench.delivery.errors import (
    CommitRefused,
    CommitUncertain,
    DeliveryFailed,
    PermanentFailure,
    PipelineError,
    RefusedStart,
)
from oncebench.delivery.failures.cause import dropped
from oncebench.delivery.journal import Identity, open_journal
from oncebench.sinks.files.folder import PENDING
from oncebench.sinks.files.formats import JSON_LINES
from oncebench.sinks.files.sink import ID_FILE, FileSink
from tests.unit.sinks.test_files_sink import Task, batches, prepared, rows, shown, sink

CLAIM = Support(AT_MOST_ONCE, "claim", "")
DAMAGED = pytest.mark.parametrize("text", ["", "[]", '{"batch": 7, "dri'])
BATCH = 7


def attempt(folder: Path, checkpoint: Path, die: bool = False) -> None:
    """A start under at-most-once that replays batch 7; its second task dies if asked."""
    journal = open_journal(checkpoint, Identity("s", "files-jsonl", AT_MOST_ONCE, "claim", 2))
    made = sink(folder, generation=journal.generation, support=CLAIM)
    if journal.claim(BATCH):
        made.claim(BATCH)
        for partition in range(1 if die else 2):
            made.unacknowledged_writer().write(Task(BATCH, partition), batches(rows(f"s{partition}")))


@DAMAGED
@pytest.mark.parametrize("die", [True, False])
def test_a_damaged_claim_can_be_removed_after_half_a_batch(tmp_path: Path, text: str, die: bool) -> None:
    """The journal has the claim too, so nothing is written a second time."""
    folder, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    attempt(folder, checkpoint, die)
    written = shown(folder)
    claimed = sink(folder, support=CLAIM, generation=2)._names.claimed
    claimed.write_text(text)
    with pytest.raises(RefusedStart, match=rf"{re.escape(str(claimed))} is damaged .*no older copy, remove the file"):
        attempt(folder, checkpoint)
    claimed.unlink()
    attempt(folder, checkpoint)
    assert shown(folder) == written
    assert len(written) == (20 if die else 40)


def test_a_note_that_is_damaged_at_a_claim_says_what_a_restart_drops(tmp_path: Path) -> None:
    made = sink(tmp_path, support=CLAIM)
    made._names.holder.write_text("{")
    with pytest.raises(RefusedStart, match=r"is damaged .*remove the file and start again") as refused:
        made.claim(BATCH)
    assert str(refused.value).endswith(dropped(BATCH))


@DAMAGED
def test_a_damaged_id_of_the_folder_is_named_and_can_be_written_again(tmp_path: Path, text: str) -> None:
    made = sink(tmp_path)
    made.make_identity()
    recorded = made.identity()
    (tmp_path / ID_FILE).write_text(text)
    with pytest.raises(RefusedStart, match=r"folder\.json is damaged .*journal/places\.json.* remove the file\. Then"):
        FileSink(JSON_LINES, str(tmp_path), "s", 2).identity()
    (tmp_path / ID_FILE).write_text(json.dumps({"id": recorded["folder"]}))
    assert FileSink(JSON_LINES, str(tmp_path), "s", 2).identity() == recorded
    (tmp_path / ID_FILE).unlink()
    made.make_identity()
    assert made.identity() != recorded


# -------------------------------------------------------------------------------------------- what is in the way


@pytest.mark.parametrize("below", [".", "below"])
def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path, below: str) -> None:
    blocking = tmp_path / "out"
    blocking.touch()
    made = FileSink(JSON_LINES, str(blocking / below), "s", 2)
    for step in (made.identity, made.holder):
        with pytest.raises(RefusedStart, match=r"Not a directory.*Move that file away") as refused:
            step()
        named = re.findall(r"(/\S+?)[ :]", str(refused.value))
        assert named[-1] == str(blocking)
    blocking.unlink()
    made.holder()


def test_a_file_in_the_place_of_the_hidden_folder_is_named_to_a_task(tmp_path: Path) -> None:
    made = sink(tmp_path)
    (tmp_path / PENDING).rmdir()
    (tmp_path / PENDING).touch()
    with pytest.raises(PermanentFailure, match=rf"Not a directory at {re.escape(str(tmp_path / PENDING))} "):
        prepared(made)


def test_a_folder_in_the_place_of_a_file_is_named_to_a_task(tmp_path: Path) -> None:
    made = sink(tmp_path, support=CLAIM)
    (tmp_path / "part-s-000000007-00001.jsonl").mkdir()
    with pytest.raises(PermanentFailure, match=r"Is a directory at \S+/part-s-000000007-00001\.jsonl .*Move that fold"):
        made.unacknowledged_writer().write(Task(), batches(rows()))


# --------------------------------------------------------------------------------------- what a restart can mend


def failing(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_args: Any, **_named: Any) -> None:
        raise OSError(code, "refused")

    for place in ("oncebench.sinks.files.driver", "oncebench.sinks.files.sink"):
        monkeypatch.setattr(f"{place}.fsync_folder", fail)
    monkeypatch.setattr("oncebench.delivery.stores.posix.fsync_folder", fail)


LACKING = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@pytest.mark.parametrize("code", LACKING)
def test_a_file_system_that_lacks_what_the_sink_needs_is_named_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    failing(monkeypatch, code)
    with pytest.raises(
        RefusedStart,
        match=r"lacks rename, links or fsync of a folder, or takes no such name\)\. Take a folder on another",
    ):
        sink(tmp_path)


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, DeliveryFailed), (errno.EROFS, RefusedStart), (errno.ELOOP, RefusedStart)]
)
def test_a_start_ends_for_good_only_by_what_no_restart_mends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[PipelineError]
) -> None:
    failing(monkeypatch, code)
    with pytest.raises(kind, match=r"then start again\. Nothing was written") as failed:
        sink(tmp_path)
    assert type(failed.value) is kind


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, DeliveryFailed), (errno.EROFS, PermanentFailure)])
def test_a_claim_that_fails_says_what_a_restart_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[PipelineError]
) -> None:
    made = sink(tmp_path, support=CLAIM)
    failing(monkeypatch, code)
    with pytest.raises(kind, match=r"^batch 7 was not written.*(Make room|Mount)") as failed:
        made.claim(BATCH)
    assert type(failed.value) is kind
    assert str(failed.value).endswith(dropped(BATCH))
    assert "writes the batch again" not in str(failed.value)


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, CommitUncertain), (errno.EROFS, CommitRefused)])
def test_a_commit_that_cannot_note_its_driver_is_finished_by_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[PipelineError]
) -> None:
    made = sink(tmp_path)
    entry = prepared(made)
    with monkeypatch.context() as full:
        failing(full, code)
        with pytest.raises(kind, match=r"^batch 7: .*The batch is decided, and the replay finishes it") as failed:
            made.commit(BATCH, {1: entry})
    assert AT_MOST_ONCE not in str(failed.value)
    assert f"batch {NO_BATCH}" not in str(failed.value)
    assert sink(tmp_path, generation=2, keep=[entry]).commit(BATCH, {1: entry}) == set()
    assert shown(tmp_path) == rows()
