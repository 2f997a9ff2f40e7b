"""The time that the observer records for a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncebench.observe.observer import follow
from oncebench.record import OBSERVED
from oncebench.record.json_lines import LineWriter
from oncebench.record.streams import StreamWriter, read_stream
from oncebench.sinks.reader import Rows


class Given:
    """A reader that has one row, read long ago."""

    def __init__(self) -> None:
        self.polls = 0

    def poll(self, _timeout_s: float) -> Rows:
        self.polls += 1
        return Rows([0], [0], [1], [b"a"], [b"{}"], [()], seen_us=1234) if self.polls == 1 else Rows()


def test_a_row_has_the_time_at_which_the_reader_had_it(tmp_path: Path) -> None:
    reader: Any = Given()
    path = tmp_path / "observed.arrow"
    with LineWriter(tmp_path / "status.jsonl") as lines, StreamWriter(path, OBSERVED) as writer:
        follow(reader, writer, lines, lambda: reader.polls > 0)
    assert read_stream(path, OBSERVED).table["seen_us"].to_pylist() == [1234]
