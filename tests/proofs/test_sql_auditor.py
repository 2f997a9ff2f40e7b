"""The two auditors share no code and count the same; if not, no verdict is trusted."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncebench.audit.agreement import Agreement, compare, counts_of
from oncebench.audit.python.audit import audit
from oncebench.audit.sql import count
from oncebench.audit.sql.files import (
    LEDGER,
    read_files,
)
from oncebench.record import FINAL, INPUT, OBSERVED, QUARANTINE, WORK_FOLDER_FILE, Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream, write_stream
from oncebench.record.validation import require
from oncebench.report.report import make_report
from oncebench.report.schema import Report
from oncebench.report.summary import summary
from oncebench.scenario.cell import Cell
from tests.proofs.both_auditors import files_of
from tests.proofs.test_audit_injection import EXAMPLES, Injection, inject, injections
from tests.unit.audit.audit_world import (
    Sent,
    VisibleRow,
    committed_to,
    event,
    final_table,
    input_table,
    key_of,
    lay_out,
    ledger_of,
    make_record,
    make_world,
    observed_table,
    of_timer,
    quarantine_table,
)
from tests.unit.audit.test_model import BAD, GOOD, KEY, mutations

WORLD = make_world(4, 2, unfinished=1)
CELL = Cell("kafka", "exactly-once", "two-phase")


class Shared:
    """One database for all tests: each counts through a cursor, whose tables are its own."""

    database: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module", autouse=True)
def database() -> Iterator[None]:
    with count.connection() as Shared.database:
        yield


def agreed(record: Record) -> dict[str, int]:
    """What both auditors count, without what is 0."""
    first = counts_of(audit(record))
    with Shared.database.cursor() as con:
        second = count.count(con, files_of(record))
    assert compare(first, second) == Agreement(len(first.keys() | second.keys()))
    return {name: number for name, number in second.items() if number}


@settings(max_examples=max(1, EXAMPLES // 15), deadline=None)
@given(injections())
def test_both_count_whatever_was_injected(injection: Injection) -> None:
    record, wanted, _ = inject(injection)
    found = agreed(record)
    assert {code: number for code, number in found.items() if code in wanted} == dict(+wanted)


def test_both_expect_no_rows_of_sessions_that_only_begin() -> None:
    world, names = make_world(4, 2), [f"8000000000000003-{number:08d}" for number in range(5)]
    begun = [Sent(0, 1000 + at, name.encode(), event(name, 0, at, 7)) for at, name in enumerate(names)]
    record = make_record(replace(world, sent=(*begun, *world.sent)), ledger=ledger_of(world))
    assert agreed(replace(record, progress=committed_to({0: 1005, 1: 1000}))) == {
        **agreed(make_record(world)), "sessions.unfinished": 5, "events.foreign": 5, "events.in_topic": 405,
    }  # fmt: skip


@settings(max_examples=max(1, EXAMPLES // 15), deadline=None)
@given(sessions=st.integers(1, 4), partitions=st.integers(1, 3), changes=mutations(), shuffle=st.randoms())
def test_both_expect_the_same_rows_for_any_input(
    sessions: int, partitions: int, changes: list[tuple[str, int, int]], shuffle: Any
) -> None:
    world = make_world(sessions, partitions)
    sent = list(world.sent)
    for kind, where, what in changes:
        each = sent[where % len(sent)]
        moved = replace(each, partition=what % partitions)
        broken = Sent(each.partition, 0, *BAD[what % len(BAD)][1:])
        sent[where % len(sent)] = {"move": moved, "break": broken}.get(kind, each)
        sent += [moved] * (kind in ("repeat", "late"))
    shuffle.shuffle(sent)
    table = input_table([replace(each, offset=at) for at, each in enumerate(sent)])
    agreed(make_record(world, input=Stream(table, complete=True), progress=committed_to({0: 300, 1: 10**6})))


def test_both_take_the_position_of_an_engine_without_batches() -> None:
    world = make_world(3, 1)
    record = make_record(world, world.rows[20:])  # the rows of one session are missing
    position = {"kind": "position", "t_us": 2, "read_us": 1, "end_offsets": {"0": 300}}
    assert agreed(replace(record, progress=Lines((position,))))["LOSS"] == 20
    assert agreed(replace(record, progress=Lines(())))["PEND"] == 20


def test_both_find_a_faultless_run_faultless() -> None:
    found = agreed(make_record(WORLD))
    assert found["rows.expected"] == found["rows.visible"] == found["rows.visible_distinct"] == 60
    assert found["sessions.unfinished"] == 1
    assert not {name for name in found if "." not in name}


def test_compensating_faults_are_counted_apart() -> None:
    rows = [*WORLD.rows[:13], *WORLD.rows[14:19], *WORLD.rows[20:], WORLD.rows[50], WORLD.rows[2].changed(j=20)]
    found = agreed(make_record(WORLD, rows))
    assert {name: number for name, number in found.items() if "." not in name} == {
        "LOSS": 2, "TORN": 1, "DUP": 1, "PHAN": 1,
    }  # fmt: skip


def test_both_count_the_same_kinds_of_wrong_rows() -> None:
    rows = list(WORLD.rows)
    rows[25] = replace(rows[25], value=b"{")  # LOSS of a row, besides the 20 of a whole session
    rows[26] = replace(rows[26], key=b"other")
    rows[27] = rows[27].changed(total=1)
    copies = [rows[20], rows[21], replace(rows[22], partition=2), rows[23].changed(j=33)]
    strange = [rows[24].changed(session_key=key_of(3)), *(rows[at].changed(session_key="x") for at in (28, 28, 29))]
    assert agreed(make_record(WORLD, [*rows[20:], *copies, *strange])).items() >= {
        "LOSS.whole-sessions": 20, "LOSS.torn-sessions": 1, "DUP.same-partition": 3, "DUP.other-partition": 1,
        "PHAN.unknown-session": 2, "PHAN.unfinished-session": 1, "PHAN.row-number": 1,
        "CORR.unreadable": 1, "CORR.wrong-key": 5, "CORR.wrong-payload": 1,
    }.items()  # fmt: skip


HOSTILE_KEYS = [
    "\0",
    "a\0b",
    '"',
    "'; DROP TABLE keys; --",
    "\\",
    "\N{PILE OF POO}",
    "\u202e",
    "",
    " a  b ",
    "x" * 10_000,
]


def test_hostile_session_keys_are_sessions_like_any_other() -> None:
    named = [
        Sent(0, 100 * at + seq, key.encode(), event(key, seq, 7, seq))
        for at, key in enumerate(HOSTILE_KEYS)
        for seq in range(100)
    ]
    rows = [
        replace(row, key=key.encode()).changed(session_key=key, total=35) for key in HOSTILE_KEYS for row in WORLD.of(0)
    ]
    raw = [replace(row, value=json.dumps(row.row, ensure_ascii=False).encode()) for row in rows[::2]]
    record = make_record(WORLD, [*rows, *raw], input=Stream(input_table(named), complete=True))
    found = agreed(replace(record, progress=committed_to({0: 10**6})))
    assert (found["sessions.finished"], found["DUP"]) == (len(HOSTILE_KEYS), len(raw))
    assert (found.get("PHAN", 0), found["CORR"]) == (0, len(rows) + len(raw))  # wrong checksums


def nonstandard_values(row: VisibleRow) -> list[bytes | None]:
    value = row.value or b""
    changes: list[dict[str, Any]] = [
        {"j": 2**70}, {"j": 1.0}, {"j": True}, {"j": "1"}, {"j": -(2**63)}, {"total": 2**63}, {"total": 2**63 - 1},
        {"total": 1e999}, {"events": 10**400}, {"checksum": None}, {"more": "\ud800"}, {"more": 1},
        {"session_key": "\ud800"}, {"session_key": None}, {"session_key": "\0"}, {"ended_at": -0.0},
    ]  # fmt: skip
    return [
        None, b"", b"\0", b"{", b"[]", b"null", b"\xff", b'{"j": NaN}', b'{"session_key": 7, "j": 1}', b"[" * 2_000,
        *(json.dumps({**row.row, **change}).encode() for change in changes),
        value[:-1] + b",}",
        value[:-1] + b', "total": 5}',
        value.replace(b'"j"', b'"j": 3, "j"'),
        value.replace(b'"j"', b'"more": 1e999, "j"'),
        value.replace(b"5,", b"05,"),
        value.replace(b'"session', b"\xef\xbb\xbf" + b'"session'),
    ]  # fmt: skip


def test_both_read_nonstandard_values_alike() -> None:
    kinds = len(nonstandard_values(WORLD.rows[0]))
    world = make_world(kinds, 2)
    rows = list(world.rows)
    for session in range(kinds):  # each in a session of its own
        at = 20 * session + 1
        rows[at] = replace(rows[at], value=nonstandard_values(rows[at])[session])
    found = agreed(make_record(world, rows))
    assert (found["CORR"], found["LOSS"], found["PHAN"]) == (30, 22, 2)


def test_each_invalid_event_is_invalid_for_the_same_reason() -> None:
    good = json.dumps(GOOD | {"more": "\ud800"}).encode()
    strange = [Sent(2, at, key, value) for at, (_, key, value) in enumerate([*BAD, ("", KEY.encode(), good)])]
    found = agreed(make_record(WORLD, input=Stream(input_table([*WORLD.sent, *strange]), complete=True)))
    assert found["events.invalid"] == found["QUAR"] == len(BAD) + 1  # the last is valid, but after its session's end


def test_both_judge_the_load_and_the_quarantine_alike() -> None:
    twice, moved = WORLD.sent[57], replace(WORLD.sent[58], offset=5_000)
    after_end = Sent(0, 6_000, key_of(0).encode(), event(key_of(0), 4, 1, 9))
    sent = [*WORLD.sent[:50], *WORLD.sent[51:58], moved, *WORLD.sent[59:], replace(twice, offset=7_000), after_end,
            Sent(1, 8_000, b"\xff", b"{")]  # fmt: skip
    held = [
        {"source_partition": 0, "source_offset": 6_000, "key": after_end.key, "value": b"other", "reason": "x"},
        {"source_partition": 1, "source_offset": 2, "key": b"k", "value": b"v", "reason": None},
        {"source_partition": None, "source_offset": 2, "key": None, "value": None, "reason": None},
        {"source_partition": -1, "source_offset": 2**62, "key": None, "value": None, "reason": None},
    ]
    record = make_record(
        WORLD,
        input=Stream(input_table(sent), complete=True),
        quarantine=Stream(quarantine_table(held), complete=True),
    )
    found = agreed(record)
    assert (found["SRC"], found["QUAR"], found["events.quarantined_for_another_reason"]) == (3, 6, 1)
    assert [found[f"SRC.{kind}"] for kind in ("absent", "twice", "elsewhere")] == [1, 1, 1]
    assert [found[f"QUAR.{kind}"] for kind in ("missing", "unasked", "changed")] == [2, 3, 1]


def test_both_accept_a_quarantined_session_that_never_ended() -> None:
    record_of_timer = of_timer(WORLD, 3)
    keys = [key_of(3).encode(), key_of(0).encode(), b"\xff", None]
    held = quarantine_table(
        [*(record_of_timer | {"key": key} for key in keys), record_of_timer | {"key": keys[0], "source_offset": 5}]
    )
    assert agreed(make_record(WORLD, quarantine=Stream(held, complete=True)))["QUAR"] == 4


def test_both_see_where_two_reads_disagree() -> None:
    placed_rows = lay_out(WORLD.rows)
    seen = [(p, o, replace(row, value=b"other") if at == 9 else row) for at, (p, o, row) in enumerate(placed_rows)]
    twice = [*seen, (*seen[20][:2], replace(WORLD.rows[0], key=None)), (0, 10_000, WORLD.rows[0])]
    observed = Stream(observed_table(twice, [1] * len(twice)), complete=True)
    record = make_record(WORLD, observed=observed)
    gone = Stream(record.final.table.slice(1), complete=True)
    assert agreed(replace(record, final=gone))["INCO"] == 3
    assert agreed(replace(record, final=replace(gone, complete=False)))["INCO"] == 2
    assert agreed(replace(record, final=gone, ends={**record.ends, "output_is_log": False}))["INCO"] == 4


def test_both_compare_the_first_of_two_contents_of_a_position() -> None:
    record, sound = make_record(WORLD), lay_out(WORLD.rows)
    other = [(p, o, replace(row, value=b"other")) for p, o, row in sound]
    for sound_us, kind in ((1, "observed-twice"), (3, "changed")):
        seen = observed_table([*other, *sound], [2] * 60 + [sound_us] * 60)
        found = agreed(replace(record, observed=Stream(seen, complete=True)))
        assert {name for name in found if name.startswith("INCO")} == {"INCO", f"INCO.{kind}"}
        assert found[f"INCO.{kind}"] == 60
    final = pa.concat_tables([record.final.table, final_table(other[:3])])
    assert agreed(replace(record, final=Stream(final, complete=True)))["INCO.final-read-twice"] == 3


def test_both_agree_how_a_run_ended() -> None:
    ends = {"output": {"0": {"lso": 60, "hw": 61}}, "final_complete": True, "leftovers": ["a.tmp", "b.tmp"]}
    stalled = make_record(WORLD, [], progress=Lines(()), timeline=Lines(({"event": "stalled"},)), ends=ends)
    assert agreed(stalled).items() >= {"STALL": 60, "STALL-LSO": 1, "ORPH": 2}.items()
    assert agreed(make_record(WORLD, timeline=Lines(({"event": "stalled"},))))["STALL"] == 1
    for timeline in (Lines(()), Lines(({"event": "start-timed-out"},))):
        assert agreed(make_record(WORLD, [], progress=Lines(()), timeline=timeline))["PEND"] == 60


def test_one_position_with_two_contents_counts_as_its_first() -> None:
    record = make_record(WORLD)
    broken = record.final.table.slice(5, 1).set_column(4, FINAL.field("value"), [pa.array([b"{"], pa.binary())])
    final = Stream(pa.concat_tables([broken, record.final.table, broken]), complete=True)
    assert agreed(replace(record, final=final)).items() >= {"CORR": 1, "INCO": 1, "LOSS": 1}.items()
    assert "CORR" not in agreed(replace(record, final=replace(final, table=final.table.slice(1))))


def test_a_key_in_two_partitions_is_expected_once_all_its_events_are_committed() -> None:
    sent = [Sent(int(seq >= 40), seq, b"k", event("k", seq, 1, 7)) for seq in range(100)]
    sent += [Sent(0, 500, b"other", event("other", 0, 1, 7))]
    record = make_record(WORLD, [], input=Stream(input_table(sent), complete=True))
    for ends, code in (({0: 40, 1: 100}, "LOSS"), ({0: 39, 1: 100}, "PEND"), ({0: 40, 1: 99}, "PEND")):
        assert agreed(replace(record, progress=committed_to(ends)))[code] == 20, ends


def test_a_key_in_two_partitions_waits_for_both_also_if_an_engine_has_no_batches() -> None:
    sent = [Sent(int(seq > 0), seq, b"k", event("k", seq, 1, 7)) for seq in range(100)]
    record = make_record(WORLD, [], input=Stream(input_table(sent), complete=True))
    for ends, code in (({"1": 100}, "PEND"), ({"0": 0, "1": 100}, "PEND"), ({"0": 1, "1": 100}, "LOSS")):
        position = {"kind": "position", "t_us": 2, "read_us": 1, "end_offsets": ends}
        assert agreed(replace(record, progress=Lines((position,))))[code] == 20, ends


def written(record: Record, folder: Path) -> Path:
    """The record as a run folder."""
    (folder / "ledger").mkdir(parents=True)
    for name in LEDGER:
        np.save(folder / "ledger" / f"{name}.npy", getattr(record.ledger, name))
    (folder / "ledger" / "plan.json").write_text(json.dumps(asdict(record.plan)))
    for name, schema in (("input", INPUT), ("final", FINAL), ("observed", OBSERVED), ("quarantine", QUARANTINE)):
        table = getattr(record, name).table
        write_stream(folder / f"{name}.arrow", schema, [table.to_pydict()])
    (folder / "ends.json").write_text(json.dumps({"leftovers": [], "input": {}, **record.ends}))
    (folder / "cell.json").write_text(json.dumps({"run": "r", "cell": CELL.as_json()}))
    (folder / WORK_FOLDER_FILE).write_text("{}")
    batch = {"kind": "batch", "t_us": 1, "batch": 0, "start_offsets": {}, "input_rows": 1, "state": [],
             "duration_ms": {"triggerExecution": 1.0}, **record.progress.items[0]}  # fmt: skip
    torn = b'{"kind":"batch","t_us":1,"end_offsets":{"0":1}'  # a killed writer's, and then the next one's on its line
    started = b'{"kind":"started","t_us":0}\n'
    (folder / "progress.jsonl").write_bytes(started + torn + json.dumps(batch).encode() + b"\n" + b'{"kind": "ba')
    (folder / "timeline.jsonl").write_text('{"event": "drained", "t_us": 5}\n')
    return folder


def report_of(folder: Path) -> dict[str, Any]:
    report = json.loads(json.dumps(make_report(Record.load(folder), CELL, {}, {"run": "r"})))
    require(report, Report, folder)
    return dict(report)


def test_report_and_summary_state_that_the_auditors_agree(tmp_path: Path) -> None:
    report = report_of(written(make_record(WORLD), tmp_path / "run"))
    assert report["auditors"] == {"agree": True, "compared": 71, "differ": {}, "trouble": ""}
    assert "auditors    two, which agree on all 71 counts" in summary(report)
    del report["auditors"]  # as in a report that was made before there were two
    require(report, Report, tmp_path)
    assert "auditors" not in summary(report)


def test_a_mistake_in_one_auditor_makes_the_verdict_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(make_record(WORLD, WORLD.rows[1:]), tmp_path / "run")
    assert report_of(folder)["verdict"] == "broken"
    monkeypatch.setitem(count.COUNTS, "LOSS", "SELECT 0")
    report = report_of(folder)
    assert (report["verdict"], report["auditors"]["agree"]) == ("unknown", False)
    assert report["auditors"]["differ"]["LOSS"] == {"first": 1, "second": 0}
    assert "the two auditors disagree on LOSS: Python counts 1, SQL counts 0" in report["reasons"]
    assert "which DISAGREE" in summary(report)


def test_an_sql_auditor_that_cannot_count_makes_the_verdict_unknown(tmp_path: Path) -> None:
    folder = written(make_record(WORLD), tmp_path / "run")
    record = Record.load(folder)
    (folder / "ledger" / "seq.npy").unlink()
    report = make_report(record, CELL, {}, {"run": "r"})
    assert (report["verdict"], report["auditors"]["compared"]) == ("unknown", 0)
    assert report["reasons"][-1].startswith("the SQL auditor could not count: ")


@pytest.mark.parametrize("name", ["input.arrow", "final.arrow", "observed.arrow"])
def test_both_read_a_cut_off_file_alike(tmp_path: Path, name: str) -> None:
    folder = written(make_record(WORLD), tmp_path / "run")
    content = (folder / name).read_bytes()
    for length in (0, 5, len(content) // 2, len(content) - 3):
        (folder / name).write_bytes(content[:length])
        with Shared.database.cursor() as con:
            second = count.count(con, read_files(folder))
        assert not compare(counts_of(audit(Record.load(folder))), second).differ, length
    (folder / name).unlink()
    assert not read_files(folder).final_whole or name != "final.arrow"


def test_the_two_auditors_share_no_code() -> None:
    second = Path(count.__file__).parent
    imported = {
        node.module
        for path in second.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    own = {name for name in imported if name.split(".")[0] in ("oncebench", "pipeline", "loadgen")}
    assert own and all(name.startswith("oncebench.audit.sql") for name in own)
    assert all("oncebench.audit.sql" not in path.read_text() for path in (second.parent / "python").glob("*.py"))


def test_the_database_reads_no_file() -> None:
    with Shared.database.cursor() as con, pytest.raises(duckdb.Error):
        con.execute(f"SELECT * FROM read_text('{__file__}')")
