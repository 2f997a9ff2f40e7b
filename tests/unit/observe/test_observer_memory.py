"""The observer keeps few bytes of rows in memory, however many arrive between two writes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from oncebench.observe import observer
from oncebench.observe.observer import follow
from oncebench.sinks.reader import Rows

LONG = b"v" * 1_000_000
POLLS = 40


class Reader:
    """A sink in which a long row is visible at each poll."""

    def __init__(self) -> None:
        self.polls = 0

    def poll(self, _timeout_s: float) -> Rows:
        if self.polls == POLLS:
            return Rows()
        self.polls += 1
        return Rows([0], [self.polls], [1], [b"k"], [LONG], [()], seen_us=1)


class Writer:
    """Counts the bytes of each append."""

    def __init__(self) -> None:
        self.appended: list[int] = []

    def append(self, columns: dict[str, Any]) -> None:
        self.appended.append(sum(map(len, columns["value"])))


class Lines:
    def append(self, _line: Any) -> None: ...


def test_long_rows_are_written_before_they_take_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "WRITE_S", 3600.0)
    reader, writer = Reader(), Writer()
    follow(cast("Any", reader), cast("Any", writer), cast("Any", Lines()), lambda: reader.polls == POLLS)
    assert sum(writer.appended) == POLLS * len(LONG)
    assert max(writer.appended) <= observer.WRITE_BYTES + len(LONG)
