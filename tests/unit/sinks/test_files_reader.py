"""The reader of a folder of files: each row once, nothing hidden, torn data reported."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from oncebench.sinks.files.formats import JSON_LINES, PARQUET
from oncebench.sinks.files.reader import read_folder
from oncebench.sinks.reader import now_us
from tests.unit.sinks.test_files_sink import batches, pending, prepared, rows, shown, sink, values


def test_a_reader_reads_each_file_once_and_no_hidden_file(tmp_path: Path) -> None:
    made, reader = sink(tmp_path), read_folder(JSON_LINES, tmp_path, "session_key")
    for name in (".hidden.jsonl", "_SUCCESS"):
        (tmp_path / name).write_text("{}\n")
    made.commit(1, {0: prepared(made, 1, 0, count=2)})
    assert values(reader.poll(0)) == rows(count=2)
    assert len(reader.poll(0)) == 0
    made.commit(2, {0: prepared(made, 2, 0, count=3)})
    prepared(made, 3, 0)
    assert values(reader.poll(0)) == rows(count=3)
    assert reader.leftovers() == [f"temporary file .pending/{name}" for name in pending(tmp_path)]


def test_a_row_is_seen_before_it_is_decoded(tmp_path: Path) -> None:
    decoding_us = []

    def decoded() -> list[dict[str, str]]:
        decoding_us.append(now_us())
        return [{"session_key": "a"}]

    (tmp_path / "part-0").touch()
    found = read_folder(replace(JSON_LINES, read=lambda _path: decoded), tmp_path, "session_key").poll(0)
    assert (len(found), found.seen_us <= decoding_us[0]) == (1, True)


def test_rows_of_two_files_never_share_a_position(tmp_path: Path) -> None:
    made = sink(tmp_path)
    made.commit(1, {p: prepared(made, 1, p) for p in (0, 1)})
    found = read_folder(JSON_LINES, tmp_path, "session_key").poll(0)
    assert len(set(zip(found.partition, found.offset, strict=True))) == len(found) == 40


def test_half_a_line_becomes_an_unreadable_row(tmp_path: Path) -> None:
    (tmp_path / "torn.jsonl").write_bytes(b'{"session_key":"a"}\n{"session_key":"b","j')
    assert shown(tmp_path) == [{"session_key": "a"}, {"unreadable": '{"session_key":"b","j'}]


def test_a_parquet_file_without_its_end_becomes_an_unreadable_row(tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    assert shown(tmp_path, PARQUET) == [{"unreadable": "torn.parquet"}]


def test_a_parquet_file_without_its_beginning_becomes_an_unreadable_row(
    tmp_path: Path,
) -> None:
    """A power cut may cause this: the file's last block has reached the disk, its first has not."""
    path = tmp_path / "torn.parquet"
    with path.open("xb") as file:
        PARQUET.write(file, next(batches(rows())), iter(()))
    whole = path.read_bytes()
    path.write_bytes(bytes(len(whole) // 2) + whole[len(whole) // 2 :])
    assert shown(tmp_path, PARQUET) == [{"unreadable": "torn.parquet"}]


def test_an_error_of_the_disk_is_not_a_torn_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "unread.parquet").touch()
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", fail)
    with pytest.raises(OSError, match="Input/output error"):
        shown(tmp_path, PARQUET)


def test_in_a_folder_of_sparks_own_sink_only_logged_files_count(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for number, name in enumerate(("a.json", "b c.json", "orphan.json")):
        (tmp_path / name).write_bytes(orjson.dumps(rows(name, 1)[0]) + b"\n")
        if name != "orphan.json":
            path = (tmp_path / name).as_uri()
            (log / str(number)).write_text("v1\n" + json.dumps({"path": path, "action": "add"}))
    reader = read_folder(JSON_LINES, tmp_path, "session_key")
    assert [row["session_key"] for row in values(reader.poll(0))] == ["a.json", "b c.json"]
    (log / "1.compact").write_text((log / "0").read_text() + (log / "1").read_text().removeprefix("v1"))
    (log / "0").unlink()
    assert len(reader.poll(0)) == 0
    assert [row["session_key"] for row in shown(tmp_path)] == ["a.json", "b c.json"]
    assert reader.leftovers() == ["unreferenced file orphan.json"]
    everybody_else = read_folder(JSON_LINES, tmp_path, "session_key", respect_metadata=False).poll(0)
    assert len(everybody_else) == 3


def test_a_folder_that_does_not_exist_yet_has_no_rows(tmp_path: Path) -> None:
    reader = read_folder(JSON_LINES, tmp_path / "later", "session_key")
    assert len(reader.poll(0)) == 0
    made = sink(tmp_path / "later")
    made.commit(1, {0: prepared(made, 1, 0)})
    assert values(reader.poll(0)) == rows()
