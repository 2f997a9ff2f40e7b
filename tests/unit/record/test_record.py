"""The run folder: cut-off files are read as far as they go, damaged ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oncebench.record import FINAL, INPUT, OBSERVED, QUARANTINE, WORK_FOLDER_FILE, Record
from oncebench.record.json_lines import LineWriter, read_lines
from oncebench.record.streams import StreamWriter, read_stream, write_stream
from oncebench.record.validation import SCHEMA_VERSION, RecordError
from oncebench.scenario.cell import Cell
from tests.unit.audit.audit_world import input_table, ledger_of, make_world

CELL: dict[str, Any] = {"schema": 1, "run": "ob-1", "cell": Cell("kafka", "exactly-once", "two-phase").as_json()}
ENDS = {"output": {"0": {"low": 0, "lso": 0, "hw": 0}}, "input": {}, "leftovers": [], "final_complete": True}
FACTS = {"run": "ob-1", "topics": {"input": "ob-1.in"}, "kafka": {}, "java": "17", "interrupted": False, "uses": {}}
BATCHES = [
    {
        "partition": [0, 1],
        "offset": [at, at],
        "timestamp_ms": [7, 8],
        "key": [b"k", None],
        "value": [b"v" * at, b""],
    }
    for at in range(5)
]


def test_a_closed_stream_gives_back_every_row(tmp_path: Path) -> None:
    write_stream(tmp_path / "input.arrow", INPUT, BATCHES)
    stream = read_stream(tmp_path / "input.arrow", INPUT)
    assert stream.complete
    assert stream.table.schema == INPUT
    assert stream.table["offset"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert stream.table["key"].to_pylist() == [b"k", None] * 5


def test_a_stream_cut_at_any_byte_is_incomplete_and_keeps_its_whole_batches(tmp_path: Path) -> None:
    whole = tmp_path / "input.arrow"
    write_stream(whole, INPUT, BATCHES)
    content = whole.read_bytes()
    rows = set()
    for length in range(len(content)):
        cut = tmp_path / "cut.arrow"
        cut.write_bytes(content[:length])
        stream = read_stream(cut, INPUT)
        assert not stream.complete, length
        assert "cut.arrow" in stream.note
        assert stream.table["offset"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4][: stream.table.num_rows]
        rows.add(stream.table.num_rows)
    assert rows == {0, 2, 4, 6, 8, 10}


def test_rows_are_in_the_file_as_soon_as_they_are_appended(tmp_path: Path) -> None:
    writer = StreamWriter(tmp_path / "input.arrow", INPUT)
    writer.append(BATCHES[3])
    stream = read_stream(tmp_path / "input.arrow", INPUT)
    assert (stream.table.num_rows, stream.complete) == (2, False)
    writer.close()
    assert read_stream(tmp_path / "input.arrow", INPUT).complete


def test_an_exception_leaves_the_stream_incomplete(tmp_path: Path) -> None:
    with pytest.raises(KeyError), StreamWriter(tmp_path / "input.arrow", INPUT) as writer:
        writer.append(BATCHES[0])
        raise KeyError
    stream = read_stream(tmp_path / "input.arrow", INPUT)
    assert (stream.table.num_rows, stream.complete) == (2, False)


def test_a_missing_stream_is_incomplete_and_noted(tmp_path: Path) -> None:
    stream = read_stream(tmp_path / "final.arrow", FINAL)
    assert (stream.table.num_rows, stream.complete, stream.note) == (0, False, "final.arrow is missing")


def test_a_stream_is_never_overwritten(tmp_path: Path) -> None:
    write_stream(tmp_path / "input.arrow", INPUT, BATCHES)
    with pytest.raises(RecordError, match="already there"):
        StreamWriter(tmp_path / "input.arrow", INPUT)
    assert read_stream(tmp_path / "input.arrow", INPUT).table.num_rows == 10


@pytest.mark.parametrize("place", ["start", "second message"])
def test_a_damaged_stream_is_refused_with_its_name_and_what_to_do(tmp_path: Path, place: str) -> None:
    path = tmp_path / "input.arrow"
    write_stream(path, INPUT, BATCHES)
    content = bytearray(path.read_bytes())
    second = content.index(b"\xff\xff\xff\xff", 8)
    where = {"start": 0, "second message": second}[place]
    content[where : where + 8] = b"\x17" * 8
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"input\.arrow is damaged at byte \d+.*run the cell again"):
        read_stream(path, INPUT)


def test_no_damage_is_taken_for_a_whole_stream_of_fewer_rows(tmp_path: Path) -> None:
    path = tmp_path / "input.arrow"
    write_stream(path, INPUT, BATCHES)
    content = path.read_bytes()
    refused = 0
    for where in range(0, len(content), 4):
        for damage in (b"\x17" * 4, b"\x00" * 4, b"\xff" * 4):
            path.write_bytes(content[:where] + damage + content[where + 4 :])
            try:
                stream = read_stream(path, INPUT)
            except RecordError:
                refused += 1
            else:
                assert stream.table.num_rows == 10 or not stream.complete, (where, damage)
    assert refused > 100


def test_a_file_that_is_no_stream_is_refused(tmp_path: Path) -> None:
    (tmp_path / "input.arrow").write_bytes(b"Hello, this is a text and no stream at all.")
    with pytest.raises(RecordError, match="damaged at byte 0"):
        read_stream(tmp_path / "input.arrow", INPUT)


def test_a_stream_with_other_columns_is_refused(tmp_path: Path) -> None:
    write_stream(tmp_path / "final.arrow", INPUT, BATCHES)
    with pytest.raises(RecordError, match="seen_us"):
        read_stream(tmp_path / "final.arrow", OBSERVED)


def test_a_stream_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    newer = INPUT.with_metadata({"oncebench.schema": str(SCHEMA_VERSION + 1)})
    with pa.OSFile(str(tmp_path / "input.arrow"), "wb") as file, pa.ipc.new_stream(file, newer) as writer:
        writer.write_table(newer.empty_table())
    with pytest.raises(RecordError, match="newer"):
        read_stream(tmp_path / "input.arrow", INPUT)


LINES: list[dict[str, Any]] = [{"kind": "batch", "end_offsets": {"0": 5, "1": 6}}, {"kind": "stopped"}]


def test_lines_come_back_as_they_were_written(tmp_path: Path) -> None:
    with LineWriter(tmp_path / "progress.jsonl") as writer:
        for line in LINES:
            writer.append(line)
    assert read_lines(tmp_path / "progress.jsonl").items == tuple(LINES)


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "hits.jsonl").items == ()


def test_lines_cut_at_any_byte_lose_only_the_line_that_was_cut(tmp_path: Path) -> None:
    content = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)
    first = content.index(b"\n")
    for length in range(len(content)):
        (tmp_path / "cut.jsonl").write_bytes(content[:length])
        lines = read_lines(tmp_path / "cut.jsonl")
        whole = (length >= first) + (length >= len(content) - 1)
        assert lines.items == tuple(LINES[:whole]), length


@pytest.mark.parametrize("careful", [True, False], ids=["LineWriter", "plain append"])
def test_a_process_that_continues_after_a_cut_line_loses_none_of_its_lines(tmp_path: Path, careful: bool) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_bytes(b'{"kind":"started"}\n{"kind":"batch","end_offsets":{"0":')
    if careful:
        with LineWriter(path) as writer:
            writer.append(LINES[0])
    else:
        with path.open("ab") as file:
            file.write(json.dumps(LINES[0]).encode() + b"\n")
    lines = read_lines(path)
    assert lines.items == ({"kind": "started"}, LINES[0])


def test_a_line_is_never_appended_to_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_bytes(b'{"ki')
    with LineWriter(path) as writer:
        writer.append(LINES[0])
    assert read_lines(path).items == (LINES[0],)


@pytest.mark.parametrize("content", [b"\x00\x00\x00\x00\n", b"[1]\n", b"kind: batch\n", b'{"a":1}\nnull\n'])
def test_a_file_without_objects_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "progress.jsonl").write_bytes(content)
    with pytest.raises(RecordError, match=r"progress\.jsonl, line \d is no JSON object"):
        read_lines(tmp_path / "progress.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder as a run leaves it, without its lines."""
    world = make_world(2, 2)
    (tmp_path / WORK_FOLDER_FILE).write_text('{"schema": 1}')
    (tmp_path / "cell.json").write_text(json.dumps(CELL))
    (tmp_path / "ends.json").write_text(json.dumps(ENDS))
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    (tmp_path / "ledger").mkdir()
    plan = {"seed": 11, "rate": 100.0, "shape": "constant", "sessions": 2, "events": 200, "topic": "in",
            "started_us": 5, "schema": 1}  # fmt: skip
    (tmp_path / "ledger" / "plan.json").write_text(json.dumps(plan))
    for name, column in vars(ledger_of(world)).items():
        np.save(tmp_path / "ledger" / f"{name}.npy", column)
    for name, schema in (("final", FINAL), ("observed", OBSERVED), ("quarantine", QUARANTINE)):
        write_stream(tmp_path / f"{name}.arrow", schema, [])
    write_stream(tmp_path / "input.arrow", INPUT, [input_table(list(world.sent)).to_pydict()])
    return tmp_path


def test_a_whole_run_folder_is_loaded(folder: Path) -> None:
    record = Record.load(folder)
    assert record.plan.started_us == 5
    assert record.ledger.sent_share == 1.0
    assert record.input.table.num_rows == 200
    assert record.final.complete
    assert record.observed.complete
    assert record.quarantine.complete
    assert record.hits.items == ()
    assert record.ends["final_complete"] is True


def test_a_folder_without_the_work_folder_file_is_no_run_folder(folder: Path) -> None:
    (folder / WORK_FOLDER_FILE).unlink()
    with pytest.raises(RecordError, match=r"is no run folder.*Give the work folder of a run"):
        Record.load(folder)


@pytest.mark.parametrize("name", [WORK_FOLDER_FILE, "ledger/plan.json", "cell.json", "ends.json", "facts.json"])
@pytest.mark.parametrize("version", ["2", "0", '"1"', "null"])
def test_a_folder_of_a_newer_schema_is_refused(folder: Path, name: str, version: str) -> None:
    (folder / name).write_text(f'{{"schema": {version}}}')
    with pytest.raises(RecordError, match=f"{name} has schema .* judge it with a newer one"):
        Record.load(folder)


@pytest.mark.parametrize("name", ["cell.json", "ledger/plan.json", "ends.json", "facts.json", WORK_FOLDER_FILE])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_object_is_refused_with_its_name(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(RecordError, match=name):
        Record.load(folder)


@pytest.mark.parametrize("name", ["cell.json", "ledger/plan.json", "ledger/acked_us.npy"])
def test_a_missing_part_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(RecordError, match=f"{name} is missing"):
        Record.load(folder)


def test_missing_reads_are_incomplete_and_the_rest_is_loaded(folder: Path) -> None:
    (folder / "final.arrow").unlink()
    (folder / "ends.json").unlink()
    record = Record.load(folder)
    assert not record.final.complete
    assert record.ends == {}


@pytest.mark.parametrize("name", ["final.arrow", "progress.jsonl", "ends.json", "facts.json"])
def test_a_folder_in_place_of_a_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    with pytest.raises(RecordError, match=rf"{name} .*take the folder from a sound copy"):
        Record.load(folder)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("progress.jsonl", {"t_us": 1}),
        ("hits.jsonl", {"fault": "after-commit:kill"}),
        ("timeline.jsonl", {"t_us": 1}),
        ("load.jsonl", {"summary": 3}),
        ("cell.json", {}),
        ("cell.json", {"run": "r", "cell": {**CELL["cell"], "sink": "../paper"}}),
        ("facts.json", {}),
        ("ends.json", {"final_complete": True}),
    ],
)
def test_a_file_that_does_not_fit_its_schema_is_refused(folder: Path, name: str, line: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(line) + "\n")
    with pytest.raises(RecordError, match=rf"{name} .*sound copy"):
        Record.load(folder)


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "other type", "other length", "pickle"])
def test_a_damaged_ledger_is_refused(folder: Path, damage: str) -> None:
    path = folder / "ledger" / "acked_us.npy"
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[:-9])
        case "text":
            path.write_bytes(b"no array")
        case "empty":
            path.write_bytes(b"")
        case "other type":
            np.save(path, np.zeros(200, np.int32))
        case "other length":
            np.save(path, np.zeros(199, np.int64))
        case "pickle":
            np.save(path, np.array([{}] * 200, dtype=object), allow_pickle=True)
    with pytest.raises(RecordError, match=r"acked_us\.npy"):
        Record.load(folder)


def test_a_ledger_of_another_plan_is_refused(folder: Path) -> None:
    np.save(folder / "ledger" / "session.npy", np.full(200, 7, np.uint32))
    with pytest.raises(RecordError, match="beyond plan"):
        Record.load(folder)


def test_a_plan_without_numbers_is_refused(folder: Path) -> None:
    (folder / "ledger" / "plan.json").write_text(
        '{"schema": 1, "seed": "x", "sessions": 2, "events": 200, "started_us": 5}'
    )
    with pytest.raises(RecordError, match="seed = 'x'"):
        Record.load(folder)


def test_an_empty_plan_has_an_empty_ledger(folder: Path) -> None:
    plan = {"schema": 1, "seed": 1, "sessions": 0, "events": 0, "started_us": 0}
    (folder / "ledger" / "plan.json").write_text(json.dumps(plan))
    for path in (folder / "ledger").glob("*.npy"):
        np.save(path, np.load(path)[:0])
    assert Record.load(folder).ledger.sent_share == 1.0
