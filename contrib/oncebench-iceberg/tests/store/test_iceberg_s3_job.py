"""A Spark job with a table in an object store, killed (SIGKILL) before and after a commit."""

from __future__ import annotations

import signal
from pathlib import Path

import orjson
import pytest
from iceberg_jobs import LIMIT_S, run_job, write
from iceberg_s3 import SECRET, access, lake
from iceberg_tables import Tables
from oncebench_iceberg.catalogs.rest import RestPlace
from oncebench_iceberg.reader import SnapshotFollower

from tests.s3_server import DroppingProxy

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * int(LIMIT_S))]


def no_process_shows_the_key() -> None:
    """Looks at what `ps` shows of every process."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:  # the process has ended
            continue
        assert SECRET.encode() not in line


def test_a_killed_job_writes_each_row_once_to_s3_and_shows_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        write(tmp_path, f"{name}1", f"{name}2", f"{name}3")
    with lake(tmp_path / "lake") as running:
        # Gives each request a connection of its own: versitygw leaves the end of an upload unread, and then refuses the
        # next request on that connection.
        proxy = DroppingProxy(running.store)
        for name, value in access(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        uri = running.catalog.uri
        tables = Tables(RestPlace(uri, "shop.orders"))
        logs = []
        for killed, code in (("after 0", -signal.SIGKILL), ("before 1", -signal.SIGKILL), ("", 0)):
            returned, log = run_job(tmp_path, killed, uri, no_process_shows_the_key)
            logs.append(log)
            assert returned == code, log
            if killed == "after 0":
                assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
                follower = SnapshotFollower(tables.place, "key")
                read = [*follower.fresh().value]
            if killed:
                assert len(tables.keys()) == len(read) == 3
        assert follower.leftovers(), "the tasks of batch 1 had written their files"
        while found := [*follower.fresh().value]:
            read += found
        expected = sorted(f"{name}{number}" for name in "abc" for number in (1, 2, 3))
        assert tables.keys() == expected
        assert sorted(orjson.loads(value or b"")["key"] for value in read) == expected
        proxy.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert not any(SECRET in log for log in logs)
    assert any(path.parent.parent.name == "events" or path.parent.name == "events" for path in files)
