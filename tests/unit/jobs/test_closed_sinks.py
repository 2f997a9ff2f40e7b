"""A start that is refused closes the sink that it has opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from oncebench.delivery.contract import AT_LEAST_ONCE, Sink, SinkKind, Support
from oncebench.delivery.errors import RefusedStart
from oncebench.jobs import SqliteSink, deliver, query
from oncebench.jobs.session import ADAPTIVE, AT_START, LARGE_TYPES

CONF = SimpleNamespace(getAll=lambda: list(AT_START.items()))
SESSION = SimpleNamespace(
    version="4.2.0",
    sparkContext=SimpleNamespace(master="local[2]", getConf=lambda: CONF),
    conf=SimpleNamespace(get=lambda name, default="2": "false" if name in (ADAPTIVE, LARGE_TYPES) else default),
)
WRITER = SimpleNamespace(option=lambda _name, _value: WRITER)
ROWS: Any = SimpleNamespace(
    isStreaming=True, schema=StructType([StructField("key", StringType())]), columns=["key"], sparkSession=SESSION,
    writeStream=SimpleNamespace(foreachBatch=lambda _function: WRITER),
)  # fmt: skip


class Counted(Sink):
    """A sink that refuses a step, and counts how often it is closed."""

    closed = 0

    def __init__(self, refuses: str = "") -> None:
        self._refuses = refuses

    def check_schema(self, _schema: StructType) -> None:
        self._reach("its columns")

    def start(self, *_: Any) -> None:
        self._reach("its start")

    def make_identity(self) -> None:
        self._reach("what its start records")

    def close(self) -> None:
        self.closed += 1

    def _reach(self, step: str) -> None:
        if step == self._refuses:
            raise RefusedStart(f"{step} is refused")


Start = Callable[[Counted, str], None]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Starts a sink of one sink_id with a checkpoint of this name."""
    monkeypatch.setattr(query, "_started", {})
    monkeypatch.setattr(query, "deliverable", lambda rows, _sink: rows)

    def started(sink: Counted, checkpoint: str) -> None:
        supports = (Support(AT_LEAST_ONCE, "acknowledged", "", default=True),)
        monkeypatch.setattr(query, "find_kind", lambda _: SinkKind("counted", supports, {}, lambda _: sink))
        described = SqliteSink("out", sink_id="mine")
        deliver(ROWS, described, guarantee=AT_LEAST_ONCE, checkpoint=tmp_path / checkpoint)

    return started


@pytest.mark.parametrize("step", ["its columns", "its start", "what its start records"])
def test_a_refused_start_closes_its_sink(start: Start, step: str) -> None:
    sink = Counted(refuses=step)
    with pytest.raises(RefusedStart, match=f"{step} is refused"):
        start(sink, "checkpoint")
    assert sink.closed == 1


def test_a_sink_id_of_another_checkpoint_closes_the_refused_sink_alone(start: Start) -> None:
    first, second = Counted(), Counted()
    start(first, "checkpoint")
    with pytest.raises(RefusedStart, match="another query of this process"):
        start(second, "other")
    assert (first.closed, second.closed) == (0, 1)


def test_a_start_with_the_same_checkpoint_closes_the_earlier_sink_alone(start: Start) -> None:
    first, second = Counted(), Counted()
    start(first, "checkpoint")
    start(second, "checkpoint")
    assert (first.closed, second.closed) == (1, 0)
