"""SQLite: a task that runs again, after its first try had committed, leaves its rows as they are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.sinks.sqlite import _TABLES, ROW, MarkedWriter


@dataclass
class Task:
    batch: int = 4
    partition: int = 1

    def passing(self, _point: str) -> None:
        pass

    def counted(self) -> tuple[int, int]:
        return 2, 77


def test_a_task_that_is_tried_again_writes_its_rows_once(tmp_path: Path) -> None:
    path = str(tmp_path / "out.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_TABLES + "INSERT INTO drivers VALUES ('s', 1)")
    columns: dict[str, Any] = {name: [1, 2] for name in ROW[1:]}
    rows = pa.record_batch({"session_key": ["a", "b"], **columns})
    for _ in range(2):
        MarkedWriter(path, "s", 1).write(Task(), iter([rows]))
    MarkedWriter(path, "s", 1).write(Task(batch=5), iter([rows]))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (4,)
