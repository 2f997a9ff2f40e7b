"""The proof of the auditor: injected faults are counted exactly, and none hides another."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncebench.audit.python.audit import Findings, audit
from oncebench.audit.python.model import Expected, expected_output
from oncebench.record import Record
from oncebench.record.streams import Stream
from tests.unit.audit.audit_world import (
    VisibleRow,
    World,
    committed_to,
    final_table,
    key_of,
    lay_out,
    make_record,
    make_world,
)

# Seconds' worth; ONCEBENCH_EXAMPLES=10000 for the long proof.
EXAMPLES = int(os.environ.get("ONCEBENCH_EXAMPLES", "90"))


FATES = ("keep", "keep", "keep", "lose", "again", "again-elsewhere", "flip", "cut", "diverge", "rekey", "retype")


@cache
def world_of(sessions: int, partitions: int) -> tuple[World, Expected]:
    world = make_world(sessions, partitions, unfinished=1)
    return world, expected_output(make_record(world).input.table)


@dataclass(frozen=True)
class Injection:
    """What is done to each row, and to the whole."""

    sessions: int
    partitions: int
    fates: tuple[tuple[str, ...], ...]  # [finished sessions][20]
    whole: tuple[str, ...]  # per finished session: "", "lost", "uncovered", "swapped"
    phantoms: tuple[tuple[str, int], ...]


@st.composite
def injections(draw: st.DrawFn) -> Injection:
    sessions = draw(st.integers(2, 6))
    finished = sessions - 1
    row_fates = st.lists(st.sampled_from(FATES), min_size=20, max_size=20).map(tuple)
    calm = st.just(("keep",) * 20)
    return Injection(
        sessions=sessions,
        partitions=draw(st.integers(1, 4)),
        fates=tuple(draw(st.one_of(calm, row_fates)) for _ in range(finished)),
        whole=tuple(draw(st.sampled_from(["", "", "lost", "uncovered", "swapped"])) for _ in range(finished)),
        phantoms=tuple(
            draw(st.lists(st.tuples(st.sampled_from(["stranger", "early", "beyond"]), st.integers(0, 40)), max_size=4,
                          unique=True))
        ),
    )  # fmt: skip


def inject(injection: Injection) -> tuple[Record, Counter[str], Expected]:
    """The record of a run with those faults, and what must be counted in it."""
    world, expected = world_of(injection.sessions, injection.partitions)
    first: list[VisibleRow] = []
    later: list[VisibleRow] = []  # replays and copies stand behind everything else
    wanted: Counter[str] = Counter()
    ends = {p: sum(each.partition == p for each in world.sent) for p in range(injection.partitions)}
    last = {int(p): int(o) for p, o in zip(expected.last_partition, expected.last_offset, strict=True)}
    uncovered_in = {
        session % injection.partitions for session, whole in enumerate(injection.whole) if whole == "uncovered"
    }
    for partition in uncovered_in:  # cut off just below the newest finished session's end
        ends[partition] = last[partition]
    for session, (fates, whole) in enumerate(zip(injection.fates, injection.whole, strict=True)):
        number = expected.session_keys.index(key_of(session))
        covered = int(expected.last_offset[number]) < ends[int(expected.last_partition[number])]
        rows = world.of(session)
        if whole == "lost":
            wanted["LOSS" if covered else "PEND"] += 20
            continue
        visible: list[VisibleRow] = []
        present = 0
        for row, fate in zip(rows, fates, strict=True):
            present += fate not in ("lose", "cut")
            if fate in ("lose", "cut"):
                wanted["LOSS" if covered else "PEND"] += 1
            visible += [] if fate == "lose" else [changed(row, fate)]
            wanted["CORR"] += fate in ("flip", "cut", "rekey", "retype", "diverge")
            wanted["DUP"] += fate in ("again", "again-elsewhere", "diverge")
            wanted["DIV"] += fate == "diverge"
            if fate == "again":
                later.append(row)
            elif fate == "again-elsewhere":
                later.append(replace(row, partition=row.partition + 1))
            elif fate == "diverge":
                later.append(row.changed(total=row.row["total"] + 1))
        wanted["SCAT"] += "again-elsewhere" in fates
        wanted["TORN"] += covered and 0 < present < 20
        if whole == "swapped" and fates[4] not in ("lose", "cut") and fates[11] not in ("lose", "cut"):
            at = [index for index, row in enumerate(visible) if is_row(row, (4, 11))]
            visible[at[0]], visible[at[1]] = visible[at[1]], visible[at[0]]
            wanted["REORD"] += 1
        first += visible
    for kind, number in injection.phantoms:
        first.append(phantom(world, kind, number))
        wanted["PHAN"] += 1
    record = make_record(world, [*first, *later], progress=committed_to(ends))
    return record, wanted, expected


def changed(row: VisibleRow, fate: str) -> VisibleRow:
    match fate:
        case "flip":
            return row.changed(checksum=row.row["checksum"] ^ 1)
        case "cut":
            return replace(row, value=(row.value or b"")[:-1])
        case "rekey":
            return replace(row, key=b"x" + (row.key or b""))
        case "retype":
            return row.changed(events="5")
        case _:
            return row


def is_row(row: VisibleRow, wanted: tuple[int, ...]) -> bool:
    try:
        return row.row["j"] in wanted
    except ValueError:
        return False


def phantom(world: World, kind: str, number: int) -> VisibleRow:
    row = world.rows[0]
    match kind:
        case "stranger":
            return replace(row, key=f"s{number}".encode()).changed(session_key=f"s{number}", j=number % 20)
        case "early":
            name = world.unfinished[0]
            return replace(row, key=name.encode()).changed(session_key=name, j=number)
        case _:
            return row.changed(j=20 + number)


def counted(record: Record, expected: Expected) -> Counter[str]:
    return Counter(audit(record, expected=expected).counts())


@settings(max_examples=EXAMPLES, deadline=None)
@given(injections())
def test_what_was_injected_is_what_is_counted(injection: Injection) -> None:
    record, wanted, expected = inject(injection)
    assert counted(record, expected) == +wanted


@settings(max_examples=max(1, EXAMPLES // 3), deadline=None)
@given(injections(), st.integers(0, 2**32 - 1))
def test_the_order_of_rows_in_the_files_changes_nothing(injection: Injection, seed: int) -> None:
    record, _, expected = inject(injection)
    order = np.random.default_rng(seed).permutation(record.final.table.num_rows)
    shuffled = replace(record, final=Stream(record.final.table.take(order), complete=True))
    before, after = audit(record, expected=expected), audit(shuffled, expected=expected)
    assert before == after


@settings(max_examples=max(1, EXAMPLES // 3), deadline=None)
@given(injections(), st.randoms())
def test_permuting_the_output_partitions_changes_no_count(injection: Injection, random: Any) -> None:
    record, wanted, expected = inject(injection)
    numbers = list(range(6))
    random.shuffle(numbers)
    table = record.final.table
    moved = table.set_column(0, table.schema.field(0), [np.array(numbers, np.int32)[table["partition"].to_numpy()]])
    findings = audit(
        replace(record, final=Stream(moved, complete=True), ends={"final_complete": True}), expected=expected
    )
    assert Counter(findings.counts()) == +wanted


@settings(max_examples=max(1, EXAMPLES // 3), deadline=None)
@given(injections(), st.data())
def test_one_more_copy_of_any_readable_row_is_one_more_duplicate(injection: Injection, data: st.DataObject) -> None:
    record, wanted, expected = inject(injection)
    table = record.final.table
    named = [at for at, value in enumerate(table["value"].to_pylist()) if value[-1:] == b"}"]
    if not named:
        return
    row = table.slice(data.draw(st.sampled_from(named)), 1)
    end = 1 + max(table["offset"].to_pylist())
    copy = row.set_column(1, table.schema.field(1), [np.array([end])])
    more = audit(replace(record, final=Stream(concat(table, copy), complete=True)), expected=expected)
    before = audit(record, expected=expected)
    assert more.anomalies["DUP"].count == before.anomalies["DUP"].count + 1
    unchanged = ("LOSS", "PEND", "TORN", "PHAN", "REORD", "DIV")
    assert {code: more.anomalies[code].count for code in unchanged} == {code: wanted[code] for code in unchanged}


def concat(table: Any, more: Any) -> Any:
    return type(table).from_batches([*table.to_batches(), *more.cast(table.schema).to_batches()])


WORLD, EXPECTED = world_of(5, 2)


def findings_of(rows: list[VisibleRow]) -> Findings:
    return audit(make_record(WORLD, rows), expected=EXPECTED)


def test_one_loss_and_one_duplicate_do_not_make_up_for_each_other() -> None:
    rows = [*WORLD.rows[:13], *WORLD.rows[14:], WORLD.rows[50]]
    assert len(rows) == len(WORLD.rows)
    assert findings_of(rows).counts() == {"LOSS": 1, "TORN": 1, "DUP": 1}


def test_ids_swapped_between_two_sessions_are_two_corruptions() -> None:
    rows = list(WORLD.rows)
    one, other = rows[7], rows[47]  # row 7 of sessions 0 and 2, both in partition 0
    swapped_one = replace(one, key=other.key).changed(session_key=other.row["session_key"])
    swapped_other = replace(other, key=one.key).changed(session_key=one.row["session_key"])
    rows[7], rows[47] = swapped_other, swapped_one
    assert findings_of(rows).counts() == {"CORR": 2}


def test_an_invented_session_does_not_make_up_for_a_lost_one() -> None:
    invented = [replace(row, key=b"invented").changed(session_key="invented") for row in WORLD.of(2)]
    rows = [*WORLD.rows[:40], *invented, *WORLD.rows[60:]]
    assert len(rows) == len(WORLD.rows)
    assert findings_of(rows).counts() == {"LOSS": 20, "PHAN": 20}


def test_a_phantom_does_not_make_up_for_a_lost_row() -> None:
    rows = [*WORLD.rows[:19], WORLD.rows[20].changed(j=20), *WORLD.rows[20:]]
    assert findings_of(rows).counts() == {"LOSS": 1, "TORN": 1, "PHAN": 1}


def test_two_payloads_exchanged_within_a_session_are_two_corruptions() -> None:
    rows = list(WORLD.rows)
    one, other = rows[3], rows[4]
    rows[3], rows[4] = one.changed(j=4), other.changed(j=3)
    assert findings_of(rows).counts() == {"CORR": 2, "REORD": 1}


@pytest.mark.parametrize("partitions", [1, 2, 3, 7])
def test_the_number_of_partitions_does_not_matter(partitions: int) -> None:
    world, expected = world_of(6, partitions)
    assert audit(make_record(world), expected=expected).counts() == {}
    rows = [row for row in world.rows if not (row.row["session_key"] == key_of(2) and row.row["j"] > 10)]
    assert audit(make_record(world, rows), expected=expected).counts() == {"LOSS": 9, "TORN": 1}


def test_the_world_itself_is_what_the_model_expects() -> None:
    table = final_table(lay_out(WORLD.rows))
    visible = {(row["session_key"], row["j"], row["total"]) for row in map(json.loads, table["value"].to_pylist())}
    wanted = {(key, j, int(EXPECTED.total[s, j])) for s, key in enumerate(EXPECTED.session_keys) for j in range(20)}
    assert visible == wanted
