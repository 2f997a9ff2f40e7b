"""The file sinks without Spark: the folder's content and a reader's rows after each step."""

from __future__ import annotations

import errno
import json
import pickle
import re
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pytest

from oncebench.delivery.contract import AT_LEAST_ONCE, EXACTLY_ONCE, SinkKind, Support
from oncebench.delivery.errors import AnotherDriver, CommitUncertain, DeliveryFailed, RefusedStart
from oncebench.kafka_access.access import KafkaAccess
from oncebench.sinks.files.folder import PENDING
from oncebench.sinks.files.formats import JSON_LINES, PARQUET, Format
from oncebench.sinks.files.reader import read_folder
from oncebench.sinks.files.sink import KINDS, FileSink
from oncebench.sinks.reader import Rows
from oncebench.sinks.registry import SINKS, suite_sinks
from oncebench.sinks.suite import Place
from pipeline import rows as job_rows
from proofs.without_jvm import as_columns, as_lines

TWO_PHASE = Support(EXACTLY_ONCE, "two-phase", "")
ACKNOWLEDGED = Support(AT_LEAST_ONCE, "acknowledged", "")
NATIVE = Support(AT_LEAST_ONCE, "native", "")
SCHEMA = pa.schema(
    [("session_key", pa.string()), ("j", pa.int32()), ("events", pa.int32())]
    + [(name, pa.int64()) for name in ("total", "checksum", "ended_at")]
)
forms = pytest.mark.parametrize("form", [JSON_LINES, PARQUET], ids=lambda form: form.suffix)


class Task:
    """A TaskView that does something at a failpoint."""

    def __init__(self, batch: int = 7, partition: int = 1, at: dict[str, Callable[[], object]] | None = None) -> None:
        self.batch, self.partition, self.at = batch, partition, at or {}
        self.passed: list[str] = []

    def reach(self, point: str) -> None:
        self.passed.append(point)
        self.at.get(point, lambda: None)()

    def counted(self) -> tuple[int, int]:
        return 0, 0


def rows(key: str = "s1", count: int = 20) -> list[dict[str, Any]]:
    numbers = {"events": 5, "total": 2**40, "checksum": 2**32 - 1, "ended_at": 1_700_000_000_000_000}
    return [{"session_key": key, "j": j, **numbers} for j in range(count)]


def batches(*parts: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    return (pa.RecordBatch.from_pylist(part, SCHEMA) for part in parts)


def without_jvm(form: Format) -> Format:
    """The format with rows encoded in Python, as the JVM encodes them before they reach a task."""
    return replace(form, write=partial(_encode_and_write, form))


def _encode_and_write(form: Format, file: BinaryIO, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> None:
    encode = as_lines if form is JSON_LINES else as_columns
    form.write(file, encode(first), map(encode, others))


def sink(folder: Path, form: Format = JSON_LINES, sink_id: str = "s", generation: int = 1, **start: Any) -> FileSink:
    made = FileSink(without_jvm(form), str(folder), sink_id, 2)
    made.start(start.get("support", TWO_PHASE), generation, start.get("keep", []))
    return made


def prepared(made: FileSink, batch: int = 7, partition: int = 1, count: int = 20) -> dict[str, Any]:
    return made.prepare_writer().write(Task(batch, partition), batches(rows(count=count)))[0]


def shown(folder: Path, form: Format = JSON_LINES) -> list[dict[str, Any]]:
    return values(read_folder(form, folder, "session_key").poll(0))


def values(found: Rows) -> list[dict[str, Any]]:
    return [orjson.loads(value) for value in found.value]  # type: ignore[arg-type]


def pending(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".pending").iterdir())


# ------------------------------------------------------------------------------------------ what is written and read


@forms
def test_rows_are_read_back_in_their_order(tmp_path: Path, form: Format) -> None:
    made = sink(tmp_path, form)
    entry, timings = made.prepare_writer().write(Task(), batches(rows("a"), rows("ü\n\"'")))
    made.commit(7, {1: entry})
    assert shown(tmp_path, form) == rows("a") + rows("ü\n\"'")
    assert timings["prepare"] > 0


@forms
def test_a_partition_without_rows_leaves_no_file_and_nothing_to_decide(tmp_path: Path, form: Format) -> None:
    made, task = sink(tmp_path, form), Task()
    assert made.prepare_writer().write(task, iter(())) == ({}, {})
    assert task.passed == ["before-prepare", "after-prepare"]
    assert pending(tmp_path) == []


def test_writers_can_be_pickled(tmp_path: Path) -> None:
    made = sink(tmp_path)
    for writer in (
        made.prepare_writer(),
        made.acknowledged_writer(),
        made.unacknowledged_writer(),
        made.warm_up_writer(),
    ):
        assert repr(pickle.loads(pickle.dumps(writer))) == repr(writer)


# ------------------------------------------------------------------------------------------ exactly-once


@forms
def test_prepared_files_are_hidden_until_the_commit(tmp_path: Path, form: Format) -> None:
    made = sink(tmp_path, form)
    entry = prepared(made)
    assert shown(tmp_path, form) == []
    assert pending(tmp_path) == [entry["file"]]
    assert made.commit(7, {1: entry}) == set()
    assert shown(tmp_path, form) == rows()
    assert pending(tmp_path) == []


def test_a_repeated_commit_finds_its_work_done(tmp_path: Path) -> None:
    made = sink(tmp_path)
    parts = {p: prepared(made, partition=p) for p in (0, 1)}
    assert made.commit(7, {0: parts[0]}) == set()
    for generation in (1, 2, 3):
        assert sink(tmp_path, generation=generation, keep=list(parts.values())).commit(7, parts) == set()
        assert shown(tmp_path) == rows() * 2


def test_a_commit_returns_lost_partitions_and_publishes_the_others(tmp_path: Path) -> None:
    made = sink(tmp_path)
    parts = {p: prepared(made, partition=p) for p in (0, 1)}
    (tmp_path / ".pending" / parts[0]["file"]).unlink()
    assert made.commit(7, parts) == {0}
    assert shown(tmp_path) == rows()


def test_a_file_with_both_names_after_a_power_cut_is_committed(tmp_path: Path) -> None:
    made = sink(tmp_path)
    entry = prepared(made)
    (tmp_path / "part-s-000000007-00001.jsonl").hardlink_to(tmp_path / ".pending" / entry["file"])
    assert made.commit(7, {1: entry}) == set()
    assert (shown(tmp_path), pending(tmp_path)) == (rows(), [])


def test_a_commit_never_replaces_another_pipelines_file(tmp_path: Path) -> None:
    made = sink(tmp_path)
    first, second = prepared(made), prepared(made, count=3)
    made.commit(7, {1: first})
    with pytest.raises(CommitUncertain, match="two pipelines write as sink_id 's'"):
        made.commit(7, {1: second})
    assert shown(tmp_path) == rows()
    assert pending(tmp_path) == [second["file"]]


@pytest.mark.parametrize("name", ["../evil.jsonl", "part-other-000000007-00001.g1." + "0" * 32 + ".jsonl", ""])
def test_a_commit_refuses_names_of_other_sinks(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommitUncertain, match="never made"):
        sink(tmp_path).commit(7, {1: {"file": name}})


def test_a_start_deletes_only_undecided_files(tmp_path: Path) -> None:
    first, other = sink(tmp_path, generation=1), sink(tmp_path, sink_id="s-000000007-00001", generation=1)
    undecided, decided, of_another = prepared(first), prepared(first), prepared(other)
    foreign = tmp_path / ".pending" / "notes.jsonl"
    foreign.touch()
    sink(tmp_path, generation=2, keep=[decided])
    assert pending(tmp_path) == sorted([decided["file"], of_another["file"], foreign.name])
    assert undecided["file"] not in pending(tmp_path)


def test_a_start_by_an_older_journal_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    younger = sink(tmp_path, generation=3)
    entry = prepared(younger)
    with pytest.raises(RefusedStart, match=r"notes generation 3, and this start is generation 2"):
        sink(tmp_path, generation=2)
    assert younger.commit(7, {1: entry}) == set()


@pytest.mark.parametrize("text", ["", "[]", '{"driver": "x", "gen'])
def test_a_damaged_note_of_the_folder_can_be_removed(tmp_path: Path, text: str) -> None:
    """No checkpoint holds this file, so none brings it back."""
    note = sink(tmp_path)._names.holder
    note.write_text(text)
    with pytest.raises(RefusedStart, match=rf"{re.escape(str(note))} is damaged .*remove the file and start again"):
        sink(tmp_path, generation=2)
    note.unlink()
    made = sink(tmp_path, generation=2)
    assert made.commit(7, {1: prepared(made)}) == set()


def test_of_two_drivers_of_one_generation_the_later_one_publishes(tmp_path: Path) -> None:
    """Their checkpoints are copies of one."""
    first = sink(tmp_path)
    of_first = prepared(first)
    second = sink(tmp_path)
    assert pending(tmp_path) == [], "a start deletes what the other one has prepared"
    late, of_second = prepared(first), prepared(second)
    for entry in (of_first, late):
        with pytest.raises(AnotherDriver, match="another driver has taken this sink_id"):
            first.commit(7, {1: entry})
    assert second.commit(7, {1: of_second}) == set()
    assert shown(tmp_path) == rows()


def test_a_killed_starts_test_file_is_removed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:  # between the rename and the end
        killed.setattr(Path, "unlink", lambda *_args, **_named: None)
        sink(tmp_path, generation=1)
    assert list(tmp_path.glob(".s.*")) != []
    sink(tmp_path, generation=2)
    assert list(tmp_path.glob(".s.*")) == []


def test_a_late_driver_publishes_no_aborted_file(tmp_path: Path) -> None:
    zombie = sink(tmp_path, generation=1)
    entry = prepared(zombie)
    sink(tmp_path, generation=2)
    with pytest.raises(AnotherDriver):
        zombie.commit(7, {1: entry})
    assert shown(tmp_path) == []


def test_a_late_tasks_file_stays_hidden_and_is_deleted(tmp_path: Path) -> None:
    late = sink(tmp_path, generation=1).prepare_writer()
    sink(tmp_path, generation=2)
    late.write(Task(), batches(rows()))
    assert shown(tmp_path) == []
    sink(tmp_path, generation=3)
    assert pending(tmp_path) == []


def test_the_newest_final_name_of_each_partition_is_its_mark(tmp_path: Path) -> None:
    made = sink(tmp_path)
    for batch, partition in ((3, 0), (12, 0), (4, 1)):
        made.commit(batch, {partition: prepared(made, batch, partition)})
    other = sink(tmp_path, sink_id="other")
    other.commit(99, {0: prepared(other, 99, 0)})
    assert {p: mark.batch for p, mark in sink(tmp_path).marks().items()} == {0: 12, 1: 4}


# ------------------------------------------------------------------------------------------ the other guarantees


@forms
@pytest.mark.parametrize("writer", [FileSink.acknowledged_writer, FileSink.unacknowledged_writer])
def test_a_task_publishes_its_file_after_the_last_row(
    tmp_path: Path, form: Format, writer: Callable[[FileSink], Any]
) -> None:
    seen: list[list[Any]] = []
    task = Task(at={"before-prepare": lambda: seen.append(shown(tmp_path, form))})
    assert writer(sink(tmp_path, form)).write(task, batches(rows(), rows("s2")))[0] == {}
    assert seen == [[]]
    assert shown(tmp_path, form) == rows() + rows("s2")


def test_at_least_once_keeps_both_attempts(tmp_path: Path) -> None:
    for _ in range(2):
        sink(tmp_path).acknowledged_writer().write(Task(), batches(rows()))
    assert shown(tmp_path) == rows() * 2


def test_at_most_once_keeps_one_attempt(tmp_path: Path) -> None:
    for _ in range(2):
        sink(tmp_path).unacknowledged_writer().write(Task(), batches(rows()))
    assert shown(tmp_path) == rows()


# ------------------------------------------------------------------------------------------ what can go wrong


@forms
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_failed_write_leaves_nothing_and_names_the_next_step(tmp_path: Path, form: Format, code: int) -> None:
    def fail() -> None:
        raise OSError(code, "refused")

    made = sink(tmp_path, form)
    for writer in (made.prepare_writer(), made.acknowledged_writer(), made.unacknowledged_writer()):
        with pytest.raises(DeliveryFailed, match=r"Make room|Mount the file system") as failure:
            writer.write(Task(at={"before-prepare": fail}), batches(rows()))
        assert "\n" not in str(failure.value)
        assert (pending(tmp_path), shown(tmp_path, form)) == ([], [])


@forms
def test_a_partial_write_leaves_no_file(tmp_path: Path, form: Format) -> None:
    made, allowed = sink(tmp_path, form), resource.getrlimit(resource.RLIMIT_FSIZE)
    many = [row for number in range(2000) for row in rows(f"session-{number}", 1)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, allowed[1]))
    try:
        with pytest.raises(DeliveryFailed, match="File too large"):
            made.acknowledged_writer().write(Task(), batches(many, many))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert (pending(tmp_path), shown(tmp_path, form)) == ([], [])


MEMORY = Path("/dev/shm")


@pytest.mark.skipif(not MEMORY.is_dir(), reason="needs a second file system")
def test_a_folder_on_two_file_systems_is_refused_until_it_is_on_one(tmp_path: Path) -> None:
    if MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    with TemporaryDirectory(dir=MEMORY) as elsewhere:
        (tmp_path / PENDING).symlink_to(elsewhere)
        with pytest.raises(RefusedStart, match=r"two file systems.*Put its subfolder \.pending, with the files"):
            sink(tmp_path)
        (tmp_path / PENDING).unlink()
    sink(tmp_path)


def test_a_folder_that_cannot_be_made_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RefusedStart, match=r"cannot use .*Move that file away or, in a new job, take another folder"):
        sink(tmp_path / "file")
    with pytest.raises(RefusedStart, match=r"cannot use .*Move that file away or, in a new job, take another folder"):
        sink(tmp_path / "file" / "below")
    with pytest.raises(RefusedStart, match=r"cannot use .*Take a shorter folder or.* sink_id.*Nothing was written"):
        sink(tmp_path / ("long" * 100))
    with pytest.raises(RefusedStart, match="Take a shorter folder"):
        FileSink(JSON_LINES, str(tmp_path / ("long" * 100)), "s", 2).holder()


def test_a_file_in_the_place_of_the_hidden_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / PENDING).touch()
    with pytest.raises(RefusedStart, match=rf"File exists at {re.escape(str(tmp_path / PENDING))}: a file has the"):
        sink(tmp_path)


@pytest.mark.parametrize("sink_id", ["", "a/b", "..\n", "x" * 240])
def test_a_sink_id_that_is_not_a_file_name_refuses_the_start(tmp_path: Path, sink_id: str) -> None:
    with pytest.raises(RefusedStart, match="sink_id"):
        sink(tmp_path, sink_id=sink_id)


@pytest.mark.parametrize("uri", ["s3a://bucket/folder", "file:/data/folder"])
def test_a_uri_refuses_the_start(uri: str) -> None:
    made = FileSink(JSON_LINES, uri, "s", 2)
    with pytest.raises(RefusedStart, match="no atomic rename"):
        made.start(TWO_PHASE, 1, [])


def test_our_files_and_sparks_own_never_share_a_folder(tmp_path: Path) -> None:
    ours, sparks = tmp_path / "ours", tmp_path / "sparks"
    sink(ours).acknowledged_writer().write(Task(), batches(rows()))
    with pytest.raises(RefusedStart, match=r"would hide.*with a new checkpoint and sink_id"):
        sink(ours, support=NATIVE).stream_native(None)  # type: ignore[arg-type]
    (sparks / "_spark_metadata").mkdir(parents=True)
    for support in (TWO_PHASE, ACKNOWLEDGED):
        with pytest.raises(RefusedStart, match="belongs to Spark's file sink"):
            sink(sparks, support=support)
    sink(sparks, support=NATIVE)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_finds_the_output_that_it_provided(tmp_path: Path, kind: SinkKind) -> None:
    made = suite_sinks()[kind.name]
    target = made.provide(Place("s", tmp_path, 2, KafkaAccess(""), str, job_rows.SCHEMA, job_rows.KEY))
    assert json.loads(json.dumps(target)) == target
    assert made.read(target).leftovers() == []
    assert SINKS[kind.name] is kind
