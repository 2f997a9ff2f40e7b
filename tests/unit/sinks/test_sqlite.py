"""The SQLite sink: what a power cut must not take back, and what the page on new sinks prints of it."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.kafka_access.access import KafkaAccess
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.sqlite.sink import SUPPORTS, SqliteSink, connect
from oncebench.sinks.suite import Place
from pipeline.rows import KEY, SCHEMA
from tests import ROOT

EXTRA = 3  # PRAGMA synchronous as a number: the folder is forced too, after the rollback journal was taken out of it


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_commit_is_on_the_disk_in_every_journal_mode(tmp_path: Path, mode: str) -> None:
    path = str(tmp_path / "rows.sqlite")
    with closing(connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
        assert connection.execute("PRAGMA synchronous").fetchone() == (EXTRA,)


def test_the_page_on_new_sinks_prints_this_sinks_own_check_of_the_columns() -> None:
    (printed,) = re.findall(
        r"^    def check_schema.*?(?=^`)", (ROOT / "docs" / "adding_a_sink.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert printed.rstrip() in (ROOT / "oncebench" / "sinks" / "sqlite" / "sink.py").read_text()


def test_the_generation_never_goes_back(tmp_path: Path) -> None:
    """A late start of an older driver is refused, and the newer driver's workers continue."""
    target = suite_sinks()["sqlite"].provide(Place("s", tmp_path, 2, KafkaAccess(""), str, SCHEMA, KEY))
    for generation in (2, 3):
        SqliteSink(target["output"], "s", 2).start(SUPPORTS[0], generation, [])
    with pytest.raises(RefusedStart, match="has seen generation 3"):
        SqliteSink(target["output"], "s", 2).start(SUPPORTS[0], 1, [])
    with closing(connect(target["output"])) as connection:
        assert connection.execute("SELECT generation FROM drivers").fetchall() == [(3,)]
