"""A copy that was cut to fit is right only with the original's length and beginning.

Both auditors check that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from oncebench.audit.sql import count
from oncebench.record import Record
from oncebench.record.streams import Stream
from tests.proofs.test_sql_auditor import Shared, agreed
from tests.unit.audit.audit_world import Sent, input_table, make_record, make_world, quarantine_table

WORLD = make_world(4, 2)
LONG = Sent(0, 1003, b"k" * 50, b"v" * 100)
CUT = [
    {},
    {"value": b"v" * 40, "value_bytes": 100},
    {"value": b"", "value_bytes": 100},
    {"key": b"k" * 20, "key_bytes": 50},
    {"key": b"k" * 20, "key_bytes": 50, "value": b"v" * 99, "value_bytes": 100},
]
WRONGLY_CUT = [
    {"value": b"v" * 40},
    {"value": b"v" * 40, "value_bytes": 99},
    {"value": b"v" * 39 + b"w", "value_bytes": 100},
    {"value": b"v" * 100, "value_bytes": 100},
    {"value": b"v" * 101, "value_bytes": 100},
    {"value": None, "value_bytes": 100},
    {"key": b"k" * 20, "key_bytes": 100},
    {"key": b"x" * 20, "key_bytes": 50},
    {"key": b"k" * 20, "value_bytes": 50},
]


@pytest.fixture(scope="module", autouse=True)
def database() -> Iterator[None]:
    with count.connection() as Shared.database:
        yield


def copied(change: dict[str, Any], original: Sent = LONG) -> Record:
    entry = {"key": original.key, "value": original.value, "reason": "not-json", "source_partition": 0,
             "source_offset": original.offset}  # fmt: skip
    source = Stream(input_table([*WORLD.sent, original]), complete=True)
    copies = Stream(quarantine_table([entry | change]), complete=True)
    return make_record(WORLD, input=source, quarantine=copies)


@pytest.mark.parametrize("change", CUT)
def test_a_copy_that_was_cut_to_fit_is_right(change: dict[str, Any]) -> None:
    assert "QUAR" not in agreed(copied(change))


@pytest.mark.parametrize("change", WRONGLY_CUT)
def test_a_copy_that_was_cut_wrongly_is_QUAR(change: dict[str, Any]) -> None:
    found = agreed(copied(change))
    assert found["QUAR"] == found["QUAR.changed"] == 1


def test_a_length_of_a_key_that_never_was_is_QUAR() -> None:
    nameless = replace(LONG, key=None)
    assert agreed(copied({"key": b"", "key_bytes": 0}, nameless))["QUAR.changed"] == 1
    assert agreed(copied({"key_bytes": 5}, nameless))["QUAR.changed"] == 1
