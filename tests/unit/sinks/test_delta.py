"""The Delta sink's log functions and reader, on tables of another implementation."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from oncebench.delivery.contract import WHOLE_BATCH, Mark, Support
from oncebench.delivery.errors import ReadError, RefusedStart
from oncebench.delivery.journal import Identity, checkpoint_id, open_journal
from oncebench.sinks.delta import reader as delta_reader
from oncebench.sinks.delta import replay as delta_replay
from oncebench.sinks.delta.log import (
    commits,
    files_of,
    newest_kept,
    row_count,
    transactions,
)
from oncebench.sinks.delta.reader import TableFollower
from oncebench.sinks.delta.sink import DeltaSink
from pipeline import rows as job_rows

IDEMPOTENT = Support("exactly-once", "idempotent", "")
SCHEMA = pa.schema(
    {"session_key": pa.string(), "j": pa.int32(), "events": pa.int32(), "total": pa.int64(), "checksum": pa.int64(),
     "ended_at": pa.int64()}
)  # fmt: skip


def rows(key: str, count: int = 3) -> pa.Table:
    made = [{"session_key": key, "j": j, "events": 5, "total": j, "checksum": j, "ended_at": 1} for j in range(count)]
    return pa.Table.from_pylist(made, SCHEMA)


def append(table: Path, content: pa.Table, app_id: str | None = None, batch: int = 0) -> None:
    entries = None if app_id is None else CommitProperties(app_transactions=[Transaction(app_id, batch)])
    write_deltalake(str(table), content, mode="append", commit_properties=entries)


def sink(folder: Path, sink_id: str = "sink") -> DeltaSink:
    open_journal(folder / "checkpoint", Identity(sink_id, "delta", "exactly-once", "idempotent", 2))
    made = DeltaSink(folder / "table", sink_id, 2, folder / "checkpoint")
    made.check_schema(job_rows.SCHEMA)
    return made


def own_id(folder: Path) -> str:
    sink(folder)
    return f"sink/{checkpoint_id(folder / 'checkpoint')}"


def finish(folder: Path, batch: int) -> None:
    """Writes the batch into Spark's commit log: Spark will never run it again."""
    (folder / "checkpoint" / "commits").mkdir(exist_ok=True)
    (folder / "checkpoint" / "commits" / str(batch)).touch()


@pytest.mark.parametrize("uri", ["file:///data/table", "file:/data/table", "hdfs://name/table"])
def test_a_table_named_by_a_uri_is_refused(tmp_path: Path, uri: str) -> None:
    with pytest.raises(RefusedStart, match=r"is a URI for Spark.*Give the path"):
        DeltaSink(Path(uri), "sink", 2, tmp_path / "checkpoint").start(IDEMPOTENT, 1, [])


def test_a_checkpoint_keeps_its_id_and_a_new_one_gets_another(tmp_path: Path) -> None:
    first = own_id(tmp_path)
    assert own_id(tmp_path) == first
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    assert own_id(tmp_path) != first


def test_a_start_finds_the_newest_batch_and_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/integration/sinks/test_delta.py` compares Spark's digest with a replay's."""
    read: list[list[str]] = []
    monkeypatch.setattr(
        delta_replay,
        "_digest_of",
        lambda files, _columns: read.append([pq.read_table(f)["session_key"][0].as_py() for f in files]) or 11,
    )
    app_id = own_id(tmp_path)
    append(tmp_path / "table", rows("a"), app_id, 6)
    append(tmp_path / "table", rows("b", 4), app_id, 7)
    append(tmp_path / "table", rows("c", 5), "somebody-else", 99)
    found = sink(tmp_path)
    found.start(IDEMPOTENT, 2, ())
    assert (found.newest_batch(), read) == (7, [])
    assert found.marks() == found.marks() == {WHOLE_BATCH: Mark(7, 4, 11)}
    assert read == [["b"]]


def test_batches_that_a_restore_of_the_table_took_back_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_replay, "_digest_of", lambda *_: 11)

    def newest() -> int:
        found = sink(tmp_path)
        found.start(IDEMPOTENT, 2, ())
        return found.newest_batch()

    table, app_id = tmp_path / "table", own_id(tmp_path)
    for batch in range(4):
        append(table, rows(f"{batch}"), app_id, batch)
    finish(tmp_path, 3)
    assert newest() == 3
    DeltaTable(str(table)).restore(1)
    append(table, rows("z"), "somebody-else", 9)
    assert newest() == 1
    DeltaTable(str(table)).restore(3)
    assert newest() == 3
    DeltaTable(str(table)).restore(0)
    append(table, rows("4"), app_id, 4)
    assert newest() == 4


def test_an_open_batch_that_a_restore_took_back_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replay would be drained: Delta skips a batch whose entry the log has."""
    monkeypatch.setattr(delta_replay, "_digest_of", lambda *_: 11)
    table, app_id = tmp_path / "table", own_id(tmp_path)
    for batch in range(3):
        append(table, rows(f"{batch}"), app_id, batch)
    finish(tmp_path, 1)
    for restored in (1, 0):
        DeltaTable(str(table)).restore(restored)
        with pytest.raises(RefusedStart, match=r"batch 2 is open, and a RESTORE .* has taken its rows back.*Restore"):
            sink(tmp_path).start(IDEMPOTENT, 2, ())
    DeltaTable(str(table)).restore(2)
    found = sink(tmp_path)
    found.start(IDEMPOTENT, 2, ())
    assert found.marks() == {WHOLE_BATCH: Mark(2, 3, 11)}


def test_batches_that_a_restore_to_a_time_took_back_do_not_count(tmp_path: Path) -> None:
    table, app_id = tmp_path / "table", own_id(tmp_path)
    for batch in range(4):
        append(table, rows(f"{batch}"), app_id, batch)
    log = table / "_delta_log"

    def restore_to_the_time_of(version: int) -> None:
        """As RESTORE .. TO TIMESTAMP: the log names no version."""
        DeltaTable(str(table)).restore(version)
        newest = commits(log)[-1]
        newest.write_text(newest.read_text().replace(f'"version":"{version}"', '"timestamp":"2026-11-25 08:00:00"'))
        assert '"timestamp":"2026' in newest.read_text()

    restore_to_the_time_of(1)
    assert newest_kept(log, app_id, 3) == 1
    append(table, rows("z"), "somebody-else", 9)
    DeltaTable(str(table)).optimize.compact()
    assert newest_kept(log, app_id, 3) == 1
    restore_to_the_time_of(3)
    assert newest_kept(log, app_id, 3) == 3
    restore_to_the_time_of(0)
    assert newest_kept(log, app_id, 3) == 0
    append(table, rows("4"), app_id, 4)
    assert newest_kept(log, app_id, 4) == 4


def test_a_table_that_was_made_again_has_another_identity(tmp_path: Path) -> None:
    assert sink(tmp_path).identity() == {}
    append(tmp_path / "table", rows("a"))
    first = sink(tmp_path).identity()
    append(tmp_path / "table", rows("b"))
    assert sink(tmp_path).identity() == first
    (tmp_path / "table").rename(tmp_path / "moved away")
    append(tmp_path / "table", rows("a"))
    assert sink(tmp_path).identity() != first


def test_entries_in_a_checkpoint_of_the_log_are_found(tmp_path: Path) -> None:
    table = tmp_path / "table"
    append(table, rows("a"), "one", 3)
    append(table, rows("b"), "two", 5)
    DeltaTable(str(table)).create_checkpoint()
    append(table, rows("c"), "two", 6)
    log = table / "_delta_log"
    (log / f"{0:020d}.json").unlink()
    assert transactions(log) == {"one": 3, "two": 6}
    with pytest.raises(LookupError, match="batch 3"):
        files_of(log, "one", 3)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_entries_in_a_v2_checkpoint_of_another_writer_are_found(tmp_path: Path, form: str) -> None:
    table = tmp_path / "table"
    append(table, rows("a"), "one", 3)
    append(table, rows("b"), "one", 4)
    log = table / "_delta_log"
    path = log / f"{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{form}"
    entry = {"appId": "one", "version": 3, "lastUpdated": 1}
    if form == "json":
        path.write_text("\n".join(json.dumps({kind: value}) for kind, value in [("sidecar", {}), ("txn", entry)]))
    else:
        pq.write_table(pa.Table.from_pylist([{"txn": entry}, {"txn": None}]), path)
    (log / f"{0:020d}.json").unlink()
    assert transactions(log) == {"one": 4}
    (log / f"{1:020d}.json").unlink()
    assert transactions(log) == {"one": 3}


def test_a_checkpoint_that_lacks_a_part_does_not_count(tmp_path: Path) -> None:
    """Its writer has died, or has not finished: the commits before it are still there."""

    def part(version: int, number: int, of: int, app_id: str) -> None:
        entry = {"appId": app_id, "version": version, "lastUpdated": 1}
        path = tmp_path / f"{version:020d}.checkpoint.{number:010d}.{of:010d}.parquet"
        pq.write_table(pa.Table.from_pylist([{"txn": entry}]), path)

    part(3, 1, 2, "one")
    part(3, 2, 2, "two")
    (tmp_path / f"{4:020d}.json").write_text(json.dumps({"txn": {"appId": "two", "version": 4}}))
    for number in (1, 2):
        part(4, number, 3, "one")
    assert transactions(tmp_path) == {"one": 3, "two": 4}
    part(4, 3, 3, "three")
    assert transactions(tmp_path) == {"one": 4, "three": 4}


def test_a_checkpoint_without_any_transaction_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"add": [1]}), tmp_path / f"{7:020d}.checkpoint.parquet")
    assert transactions(tmp_path) == {}


@pytest.mark.parametrize(
    ("settings", "protocol", "named"),
    [
        ({"delta.columnMapping.mode": "name"}, {"minReaderVersion": 2, "minWriterVersion": 5}, "other names"),
        (
            {},
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"],
             "writerFeatures": ["catalogManaged", "inCommitTimestamp"]},
            "catalog-managed table",
        ),
    ],
)  # fmt: skip
def test_a_table_whose_replays_cannot_be_compared_is_refused_by_name(
    tmp_path: Path, settings: dict[str, str], protocol: dict[str, object], named: str
) -> None:
    append(tmp_path / "table", rows("a"))
    first = tmp_path / "table" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] |= settings
            schema = json.loads(action["metaData"]["schemaString"])
            for at, column in enumerate(schema["fields"], 1):
                column["metadata"] = {"delta.columnMapping.id": at, "delta.columnMapping.physicalName": f"col-{at}"}
            action["metaData"]["schemaString"] = json.dumps(schema)
        if "protocol" in action:
            action["protocol"] = protocol
    first.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(RefusedStart, match=named):
        sink(tmp_path).start(IDEMPOTENT, 1, ())


def test_entries_of_another_checkpoint_refuse_the_start(tmp_path: Path) -> None:
    append(tmp_path / "table", rows("a"), "sink/of-a-lost-checkpoint", 4)
    with pytest.raises(RefusedStart, match=r"batches up to 4 of sink_id 'sink'.*take a new sink_id"):
        sink(tmp_path).start(IDEMPOTENT, 1, ())
    assert "up to 4" not in (tmp_path / "checkpoint" / "journal" / "checkpoint.json").read_text()


def test_a_read_only_table_refuses_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, _mode: path != tmp_path)
    with pytest.raises(RefusedStart, match=r"table, or the folder for it, cannot be written\. Nothing was written"):
        sink(tmp_path).start(IDEMPOTENT, 1, ())


def test_claims_of_another_checkpoint_refuse_the_start(tmp_path: Path) -> None:
    own_id(tmp_path)
    append(tmp_path / "table", rows("a"), "sink/claim/older-checkpoint", 4)
    with pytest.raises(RefusedStart, match=r"holds batches up to 4 of sink_id 'sink' from another checkpoint"):
        sink(tmp_path).start(Support("at-most-once", "claim", ""), 1, ())


def test_a_sink_id_that_is_a_prefix_of_another_is_distinct(tmp_path: Path) -> None:
    append(tmp_path / "table", rows("a"), "sink-2/id", 4)
    started = sink(tmp_path)
    started.start(IDEMPOTENT, 1, ())
    assert started.marks() == {}


@pytest.mark.parametrize("gone", ["*.parquet", "_delta_log/*0.json"])
def test_an_open_batch_without_its_files_cannot_be_compared(tmp_path: Path, gone: str) -> None:
    table = tmp_path / "table"
    append(table, rows("a"), own_id(tmp_path), 0)
    append(table, rows("b"))
    DeltaTable(str(table)).create_checkpoint()
    (file,) = [path for path in table.glob(gone) if "00000000000000000001" not in path.name][:1]
    file.unlink()
    if gone == "*.parquet":
        assert len(list(table.glob(gone))) == 1
        for path in table.glob(gone):
            path.unlink()
    found = sink(tmp_path)
    found.start(IDEMPOTENT, 2, ())
    assert "batch 0 is open and in the Delta table" in str(found.incomparable())
    assert found.marks() == {WHOLE_BATCH: Mark(0, 0, None)}, "the entry proves the commit"
    finish(tmp_path, 0)
    found = sink(tmp_path)
    found.start(IDEMPOTENT, 2, ())
    assert found.incomparable() is None


def test_rows_are_counted_over_all_files_of_a_commit(tmp_path: Path) -> None:
    pq.write_table(rows("a", 10).slice(0, 3), tmp_path / "one")
    pq.write_table(rows("a", 10).slice(3), tmp_path / "two")
    assert row_count([tmp_path / "two", tmp_path / "one"]) == 10


def test_a_reader_returns_each_committed_row_once(tmp_path: Path) -> None:
    table = tmp_path / "table"
    reader = TableFollower(table, "session_key")
    assert len(reader.fresh()) == 0  # no table yet
    append(table, rows("a"))
    pq.write_table(rows("z"), table / "part-of-a-dead-writer.parquet")
    (table / "part-torn.parquet").write_bytes(b"PAR1")
    pq.write_table(rows("z", 0), table / "part-empty.parquet")
    first = reader.fresh()
    append(table, rows("b"))
    second = reader.fresh()
    assert len(reader.fresh()) == 0
    keys = Counter(json.loads(value or b"")["session_key"] for value in [*first.value, *second.value])
    assert keys == {"a": 3, "b": 3}
    places = list(zip([*first.partition, *second.partition], [*first.offset, *second.offset], strict=True))
    assert len(set(places)) == 6
    assert list(json.loads(first.value[0] or b"")) == SCHEMA.names
    assert reader.leftovers() == ["part-of-a-dead-writer.parquet", "part-torn.parquet"]


def test_a_reader_finds_new_versions_by_their_log_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table"
    append(table, rows("a"))
    reader = TableFollower(table, "session_key")
    assert len(reader.fresh()) == 3
    append(table, rows("b"))
    append(table, rows("c"))
    monkeypatch.delattr(DeltaTable, "update_incremental")  # milliseconds of a core, at each look in vain
    monkeypatch.delattr(delta_reader, "DeltaTable")
    found = reader.fresh()
    assert [json.loads(value or b"")["session_key"] for value in found.value] == ["b"] * 3 + ["c"] * 3
    assert len(reader.fresh()) == 0


def test_a_table_that_cannot_be_understood_refuses_the_start(tmp_path: Path) -> None:
    append(tmp_path / "table", rows("a"))
    entry = tmp_path / "table" / "_delta_log" / f"{0:020}.json"
    entry.write_bytes(entry.read_bytes()[:40])  # a torn log
    with pytest.raises(RefusedStart, match=r"Delta table .* cannot be read: .*Nothing was written"):
        sink(tmp_path).start(IDEMPOTENT, 1, ())


def test_a_reader_reports_a_table_that_cannot_be_understood(tmp_path: Path) -> None:
    append(tmp_path / "table", rows("a"))
    entry = tmp_path / "table" / "_delta_log" / f"{0:020}.json"
    entry.write_bytes(entry.read_bytes().replace(b'"minReaderVersion":1', b'"minReaderVersion":99'))
    with pytest.raises(ReadError, match=r"Delta table .* cannot be read: "):
        TableFollower(tmp_path / "table", "session_key").fresh()


def test_a_folder_in_place_of_a_log_entry_is_reported_as_damage(tmp_path: Path) -> None:
    append(tmp_path / "table", rows("a"))
    (tmp_path / "table" / "_delta_log" / f"{1:020}.json").mkdir()
    with pytest.raises(RefusedStart, match=r"Delta table .* cannot be read: .*Mend the cause"):
        sink(tmp_path).start(IDEMPOTENT, 1, ())
    with pytest.raises(ReadError, match=r"Delta table .* cannot be read: .*its log is damaged"):
        TableFollower(tmp_path / "table", "session_key").leftovers()


def test_a_late_reader_gets_complete_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_reader, "FILES_A_POLL", 2)
    table = tmp_path / "table"
    append(table, rows("a"))
    (commit,) = commits(table / "_delta_log")
    (add,) = (json.loads(line)["add"] for line in commit.read_text().splitlines() if "add" in json.loads(line))
    for name in ("p1", "p2", "p3"):
        pq.write_table(rows(name), table / f"{name}.parquet")
    adds = [{"add": {**add, "path": f"{name}.parquet"}} for name in ("p1", "p2", "p3")]
    commit.with_name(f"{1:020}.json").write_text("\n".join(map(json.dumps, adds)))
    append(table, rows("b"))
    reader = TableFollower(table, "session_key")
    looks = [{json.loads(value or b"")["session_key"] for value in reader.fresh().value} for _ in range(4)]
    assert looks == [{"a"}, {"p1", "p2", "p3"}, {"b"}, set()]
