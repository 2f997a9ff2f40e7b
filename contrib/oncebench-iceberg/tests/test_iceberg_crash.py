"""A job that is killed (SIGKILL) after a commit.

Other programs change its table before the restart.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from iceberg_jobs import LIMIT_S, run_job, write
from iceberg_tables import Tables
from oncebench_iceberg.catalogs.local import LocalPlace

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2 * int(LIMIT_S))]


def test_a_killed_job_repeats_nothing_in_a_table_others_changed(tmp_path: Path) -> None:
    tables = Tables(LocalPlace(tmp_path / "warehouse", "shop.orders"))
    write(tmp_path, "a", "b")
    code, messages = run_job(tmp_path, "after 0")
    assert code == -signal.SIGKILL, messages
    assert tables.keys() == ["a", "b"]
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()

    tables.load().overwrite(tables.load().scan().to_arrow())  # a compaction: the same rows in another file
    tables.append_by_other("a", "other")  # another writer, also with a row of ours
    tables.expire_all_but_newest()  # neither the batch's snapshot nor its summary is left
    before = tables.keys()
    assert before == ["a", "a", "b", "other"]

    write(tmp_path, "c")
    code, messages = run_job(tmp_path)
    assert code == 0, messages
    assert tables.keys() == sorted([*before, "c"])
