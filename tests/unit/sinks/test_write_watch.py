"""The watch over a user's function.

It acts while the function has written, and before the function has returned.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

from oncebench.sinks.black_box import write_watch
from oncebench.sinks.black_box.passes import Passes
from oncebench.sinks.black_box.reader import Functions
from oncebench.sinks.black_box.write_watch import own_code, watched
from oncebench.sinks.reader import NotAnsweredError


class Store:
    """A sink with a reader.

    `locked`: a call of the reader waits, as for a transaction that is open.
    """

    limit_s = 10.0

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.marked = False
        self.locked = threading.Lock()
        self.open = True

    def call(self, _command: str) -> list[list[Any]]:
        time.sleep(0.002)
        with self.locked:
            if not self.rows:
                raise NotAnsweredError("no such table")
            return [[each] for each in self.rows]

    def close(self) -> None:
        self.open = False


def mark_last(store: Store) -> None:
    for row in ("old", "new-1", "new-2", "new-3"):
        store.rows.append(row)
    store.marked = True


def one_step(store: Store) -> None:
    store.rows, store.marked = ["new-1", "new-2"], True


def locked(store: Store) -> None:
    with store.locked:
        store.rows.append("new-1")
        store.rows.append("new-2")
    store.marked = True


def later(store: Store) -> None:
    threading.Timer(0.3, one_step, (store,)).start()


def writes_nothing(store: Store) -> None:
    store.marked = True


def act_of(function: Callable[[Store], None], has_rows: bool = True) -> tuple[list[tuple[int, bool]], Store]:
    """Returns (rows of the batch, whether the function has marked it) at each act."""
    store, acts = Store(), list[tuple[int, bool]]()
    with watched(
        cast(Functions, store),
        lambda rows: sum(row[0].startswith("new") for row in rows),
        lambda found: acts.append((found, store.marked)),
        own_code(f"{__name__}:write", "/nowhere"),
        lambda: has_rows,
    ):
        function(store)
    return acts, store


def test_the_watch_acts_between_the_first_row_and_the_mark() -> None:
    acts, store = act_of(mark_last)
    assert acts == [(1, False)]
    assert store.marked, "without a kill the function goes on"


@pytest.mark.parametrize("function", [one_step, later])
def test_the_watch_acts_before_the_call_ends_where_rows_and_mark_are_one_step(
    function: Callable[[Store], None],
) -> None:
    assert act_of(function)[0] == [(2, True)]


def test_a_reader_that_waits_for_the_function_does_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_watch, "PATIENCE_S", 0.1)
    assert act_of(locked)[0] == [(2, False)]


def test_a_function_without_rows_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    assert act_of(writes_nothing, has_rows=False)[0] == []
    assert time.monotonic() - began < write_watch.END_S / 2
    monkeypatch.setattr(write_watch, "END_S", 0.2)
    assert act_of(writes_nothing)[0] == []


def test_the_wait_for_rows_at_the_end_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_watch, "END_S", 100.0)
    monkeypatch.setattr(write_watch, "LINES_S", 0.3)
    began = time.monotonic()
    assert act_of(writes_nothing)[0] == []
    assert time.monotonic() - began < 50.0


def test_the_watch_ends_with_the_call() -> None:
    before = sys.gettrace()
    _, store = act_of(mark_last)
    assert sys.gettrace() is before
    end = time.monotonic() + 5
    while store.open and time.monotonic() < end:
        time.sleep(0.01)
    assert not store.open, "the process of the reader is ended"


def frame(name: str, file: str) -> FrameType:
    space: dict[str, Any] = {"__name__": name}
    exec(compile("import sys\nframe = sys._getframe()", file, "exec"), space)
    return cast(FrameType, space["frame"])


@pytest.mark.parametrize(
    ("name", "file", "own"),
    [
        ("mine.sinks.http", "/venv/lib/python3.12/site-packages/mine/sinks/http.py", True),
        ("helpers", "/me/helpers.py", True),
        ("pyspark.sql", "/me/.venv/lib/python3.12/site-packages/pyspark/sql.py", False),
        ("json", "/usr/lib/python3.12/json/__init__.py", False),
    ],
)
def test_the_users_own_code_is_that_of_the_package_and_of_the_folder(name: str, file: str, own: bool) -> None:
    assert own_code("mine.sinks:write", "/me")(frame(name, file)) is own


def test_a_pass_is_the_last_one_if_an_earlier_batch_had_no_more(tmp_path: Path) -> None:
    passes = Passes(tmp_path / "batch-9", ((0, 2), (1, 1)))
    assert [passes.begin(0), passes.begin(0), passes.begin(1)] == [False, True, True]
    passes.note(["a", "b", "a"])
    passes.note(["c"])
    assert passes.keys() == {"a", "b", "c"}
    assert passes.take() == ((0, 2), (1, 1))
    assert not list(tmp_path.iterdir())
    assert Passes(tmp_path / "batch-10").begin(0)
