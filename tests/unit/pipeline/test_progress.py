"""The open batch at a start, and progress lines that cannot be written."""

from __future__ import annotations

import errno
import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.jobs.checkpoint import begun_at, committed_position, open_batch
from pipeline.progress import Listener, Progress


@pytest.mark.parametrize(
    ("offsets", "commits", "left"),
    [((), (), None), ((0,), (), 0), ((0, 1), (0,), 1), ((9, 10), (9, 10), None), ((9, 10, 11), (9, 10), 11)],
)
def test_the_open_batch_is_the_newest_uncommitted_one(
    tmp_path: Path, offsets: tuple[int, ...], commits: tuple[int, ...], left: int | None
) -> None:
    for log, batches in (("offsets", offsets), ("commits", commits)):
        (tmp_path / log).mkdir()
        for batch in batches:
            (tmp_path / log / str(batch)).touch()
            (tmp_path / log / f".{batch}.crc").touch()
    assert open_batch(tmp_path) == left


def test_a_new_checkpoint_has_no_open_batch(tmp_path: Path) -> None:
    assert open_batch(tmp_path / "new") is None


ENTRY = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1500,"conf":{}}\n{"in":{"0":7}}'


def checkpointed(folder: Path, entry: str) -> Path:
    """A checkpoint with one batch and this entry in the offset log."""
    for log, text in (("offsets", entry), ("commits", "v1\n{}")):
        (folder / log).mkdir()
        (folder / log / "3").write_text(text)
    return folder


def test_an_offset_log_entry_has_time_and_end_of_its_batch(tmp_path: Path) -> None:
    checkpoint = checkpointed(tmp_path, ENTRY)
    assert (begun_at(checkpoint, 3), committed_position(checkpoint, "in")) == (1.5, (3, {"0": 7}))


@pytest.mark.parametrize("kept", [0, 30, 45, len(ENTRY) - 3])
def test_a_damaged_offset_log_entry_refuses_the_start(tmp_path: Path, kept: int) -> None:
    checkpoint = checkpointed(tmp_path, ENTRY[:kept])
    with pytest.raises(
        RefusedStart, match=r"offsets/3 in Spark's checkpoint can't be read .*: the checkpoint is damaged"
    ):
        committed_position(checkpoint, "in")


def test_an_offset_log_on_a_failed_disk_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    checkpoint = checkpointed(tmp_path, ENTRY)
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(
        DeliveryFailed, match=r"offsets/3 .* cannot be read \(Input/output error: .* start again"
    ) as found:
        begun_at(checkpoint, 3)
    assert found.value.restart_helps


def test_an_entry_that_is_cut_within_its_time_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(RefusedStart, match=r"offsets/3 .* the checkpoint is damaged"):
        begun_at(checkpointed(tmp_path, ENTRY[:45]), 3)


FULL = Path("/dev/full")  # every write to it fails as on a full disk


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_job_continues_without_lost_lines_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    progress = Progress(FULL, whole=False)
    for batch in range(3):
        progress.write("sink", batch=batch)
    (warning,) = caplog.messages
    assert "/dev/full cannot be written (No space left on device): the pipeline continues" in warning
    assert "Make room" in warning


def test_a_judged_run_stops_at_the_first_lost_line() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        Progress(FULL, whole=True).write("sink", batch=0)


@pytest.mark.parametrize("whole", [True, False])
def test_a_torn_line_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    progress = Progress(tmp_path / "progress.jsonl", whole)
    progress.write("sink", batch=0)
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.progress.os.write", lambda handle, line: write(handle, line[:5]))
        with pytest.raises(OSError, match="No space left") if whole else nullcontext():
            progress.write("sink", batch=1)
    progress.write("sink", batch=2)
    first, torn, last = (tmp_path / "progress.jsonl").read_text().splitlines()
    assert (json.loads(first)["batch"], torn, json.loads(last)["batch"]) == (0, '{"kin', 2)


def test_the_newest_lines_are_kept_within_twice_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.progress.MOST_BYTES", 1000)
    path, older = tmp_path / "progress.jsonl", tmp_path / "progress.jsonl.1"
    progress = Progress(path, whole=False)
    for batch in range(100):
        progress.write("sink", batch=batch)
        assert path.stat().st_size < 1100
    kept = [line["batch"] for file in (older, path) for line in lines(file)]
    assert kept == list(range(kept[0], 100))
    assert len(kept) > 15
    assert sorted(tmp_path.iterdir()) == [path, older]


def test_a_new_file_without_room_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.progress.MOST_BYTES", 10)
    path = tmp_path / "progress.jsonl"
    progress = Progress(path, whole=False)
    progress.write("sink", batch=0)
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.progress._opened", lambda _: os.open(tmp_path / "no" / "folder", os.O_RDONLY))
        progress.write("sink", batch=1)
    progress.write("sink", batch=2)
    assert [line["batch"] for line in lines(path)] == [2]


def test_a_judged_run_keeps_all_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.progress.MOST_BYTES", 1000)
    path = tmp_path / "progress.jsonl"
    progress = Progress(path, whole=True)
    for batch in range(100):
        progress.write("sink", batch=batch)
    assert [line["batch"] for line in lines(path)] == list(range(100))
    assert list(tmp_path.iterdir()) == [path]


class Nobody:
    """Monitoring without a cluster."""

    def commit(self, _offsets: object) -> None: ...


def test_a_batch_line_has_the_beginning_of_its_trigger(tmp_path: Path) -> None:
    source = {"startOffset": {"in": {"0": 1}}, "endOffset": {"in": {"0": 5}}}
    seen = {
        "batchId": 7, "timestamp": "2026-11-23T17:31:05.571Z", "numInputRows": 4, "stateOperators": [],
        "durationMs": {"addBatch": 246, "triggerExecution": 312}, "sources": [source],
    }  # fmt: skip
    Listener(Progress(tmp_path / "progress.jsonl", whole=True), Nobody(), "in", pytest.fail).record(json.dumps(seen))  # type: ignore[arg-type]
    (line,) = lines(tmp_path / "progress.jsonl")
    assert (line["kind"], line["batch"], line["end_offsets"]) == ("batch", 7, {"0": 5})
    assert line["began_us"] == 1_795_455_065_571_000
    assert line["t_us"] > line["began_us"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_lost_batch_line_ends_a_judged_run(whole: bool) -> None:
    """Spark only logs what a listener raises, so the listener reports it to the job."""
    seen = {
        "batchId": 7, "timestamp": "2026-11-23T17:31:05.571Z", "numInputRows": 4, "stateOperators": [],
        "durationMs": {"addBatch": 246}, "sources": [{"startOffset": {}, "endOffset": {}}],
    }  # fmt: skip
    failed: list[BaseException] = []
    Listener(Progress(FULL, whole), Nobody(), "in", failed.append).record(json.dumps(seen))  # type: ignore[arg-type]
    assert [str(each) for each in failed] == (["[Errno 28] No space left on device: '/dev/full'"] if whole else [])
