"""Visible values as columns: read batch by batch, or value by value if one is nonstandard."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oncebench.audit.python import outputs
from oncebench.audit.python.outputs import Outputs, read_outputs
from oncebench.audit.python.records import PIECE_ROWS, keep

ROW = {"session_key": "a", "j": 3, "events": 5, "total": 7, "checksum": 9, "ended_at": 11}


def value(**changes: Any) -> bytes:
    return json.dumps(ROW | changes).encode()


def read(values: list[bytes | None], *, with_record: bool = False) -> Outputs:
    keys = [b"a"] * len(values)
    records = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    return read_outputs(records, np.arange(len(values)), keep, with_record=with_record)


def test_regular_values_are_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_value: bytes | None) -> Any:
        raise AssertionError("read by itself")

    monkeypatch.setattr(outputs, "_read_one", refused)
    found = read([value(), value(session_key="b", j=0), value(j=19)])
    assert (found.session_keys, found.session.tolist(), found.j.tolist()) == (["a", "b"], [0, 1, 0], [3, 0, 19])
    assert found.payload.tolist() == [[5, 7, 9, 11]] * 3
    assert (found.parsed.tolist(), found.keyed.tolist()) == ([True] * 3, [True, False, True])
    assert found.id.tolist() == [3, 20, 19]


@pytest.mark.parametrize(
    "nonstandard",
    [
        None,
        b"",
        b"[]",
        b"7",
        value(more=1),
        value(session_key=7),
        value(total="7"),
        value(total=True),
        value(total=7.0),
        value(total=2**63),
        value(j=None),
        b"{}",
    ],
)
def test_one_nonstandard_value_slows_only_its_own_batch(
    nonstandard: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[bytes | None] = []
    sound = outputs._read_one
    monkeypatch.setattr(outputs, "_read_one", lambda each: alone.append(each) or sound(each))
    found = read([value()] * PIECE_ROWS + [value(j=1), nonstandard])
    assert alone == [value(j=1), nonstandard]
    assert found.parsed.tolist() == [True] * (PIECE_ROWS + 1) + [False]
    assert found.payload[-1].tolist() == [0, 0, 0, 0]
    assert found.id[:-1].tolist() == [3] * PIECE_ROWS + [1]


def test_a_row_number_out_of_range_has_an_id_behind_all_sessions() -> None:
    places = [("a", 20), ("b", -1), ("a", 20), ("a", -1), ("b", 19), ("b", 2**62)]
    found = read([value(session_key=key, j=j) for key, j in places])
    assert found.id[4] == 39
    outside = found.id[[0, 1, 2, 3, 5]]
    assert outside[0] == outside[2]
    assert len(np.unique(outside)) == 4
    assert outside.min() >= 40


def test_a_value_has_an_id_if_it_names_a_row() -> None:
    found = read([b"{", value(j=True), value(total=None), value(session_key=None), value(j=7.5)])
    assert found.id.tolist() == [-1, -1, 3, -1, -1]
    assert found.j[2] == 3
    assert found.session.tolist() == [-1, -1, 0, -1, -1]
    assert not found.parsed.any()


def test_rows_that_must_have_a_record_are_not_well_formed_if_all_of_them_lack_it() -> None:
    found = read([value(), value()], with_record=True)
    assert (found.id.tolist(), found.parsed.tolist()) == ([3, 3], [False, False])


def test_the_first_records_of_a_read_are_its_head() -> None:
    found = read([value(), value(j=4), b"{"])
    head = found.head(2)
    assert (head.id.tolist(), head.session.tolist(), head.j.tolist()) == ([3, 4], [0, 0], [3, 4])
    assert (head.parsed.tolist(), head.keyed.tolist()) == ([True, True], [True, True])
    assert (head.payload.tolist(), head.session_keys) == ([[5, 7, 9, 11]] * 2, ["a"])


def test_a_read_without_records_has_none() -> None:
    found = read([])
    assert (len(found.id), found.payload.shape, found.session_keys) == (0, (0, 4), [])
