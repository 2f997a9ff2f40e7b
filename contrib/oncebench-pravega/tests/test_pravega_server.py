"""The Pravega sink on a real server.

The tests cover a worker killed after pre-commit, a lease that runs out, refusals, and the service.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from oncebench_pravega.controller import ABORTED, OPEN, VARIABLE, Controller, Stream
from oncebench_pravega.segment_store import EVENT_BYTES, SegmentError
from oncebench_pravega.server import SERVICES, PravegaServer, start_pravega
from oncebench_pravega.sink import PravegaSink
from pravega_fakes import Task, rows

from oncebench.delivery.errors import RefusedStart, TransactionTooSlow
from oncebench.errors import MissingEnvironment
from oncebench.sinks.reader import Rows
from oncebench.sinks.registry import suite_sinks
from tests.pipelines import place

SINK = suite_sinks()["pravega"]
pytestmark = [pytest.mark.integration, pytest.mark.slow]
SUPPORTS = {support.variant: support for support in SINK.kind.supports}
SHORTEST_LEASE_MS = 10_000
# A worker that writes 100 rows into a transaction, tells its id, and dies in the same breath.
WORKER = """
import os, sys
import pyarrow as pa
from types import SimpleNamespace
from oncebench_pravega.writers import EventWriter
from oncebench_pravega.controller import Stream

values = [b'{"session_key":"s","j":%d}' % j for j in range(100)]
rows = pa.RecordBatch.from_pydict({"key": [b"s"] * 100, "value": values})
task = SimpleNamespace(batch=0, partition=int(sys.argv[3]), reach=lambda point: None)
prepared, _ = EventWriter(sys.argv[1], Stream.named(sys.argv[2]), int(sys.argv[4])).write(task, iter([rows]))
print(prepared["transaction"], flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PravegaServer]:
    with start_pravega(tmp_path_factory.mktemp("pravega")) as started:
        yield started


@pytest.fixture
def target(server: PravegaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A stream of its own."""
    monkeypatch.setenv(VARIABLE, server.address)
    return SINK.provide(place(f"t-{time.time_ns():x}", tmp_path))


def killed_worker(server: PravegaServer, target: dict[str, str], partition: int, lease_ms: int = 60_000) -> str:
    """The id of the transaction that a worker left open when it was killed."""
    command = [sys.executable, "-c", WORKER, server.address, target["output"], str(partition), str(lease_ms)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return ended.stdout.strip()


def visible(target: dict[str, str]) -> int:
    found: list[Rows] = []
    with closing(SINK.read(target)) as reader:
        assert reader.read_to_end(found.append, settle_s=0, idle_s=0).complete
    return sum(map(len, found))


def sink(target: dict[str, str], lease_ms: int = 60_000) -> PravegaSink:
    return PravegaSink(Stream.named(target["output"]), 2, lease_ms)


def test_what_a_killed_worker_prepared_is_invisible_until_another_process_commits_it_and_then_whole(
    server: PravegaServer, target: dict[str, str]
) -> None:
    prepared = {part: {"transaction": killed_worker(server, target, part)} for part in (0, 1)}
    assert visible(target) == 0
    with closing(sink(target)) as driver:
        driver.start(SUPPORTS["two-phase"], 2, [])
        assert driver.commit(0, {0: prepared[0]}) == set()
        assert visible(target) == 100
        assert driver.commit(0, prepared) == set()
        assert driver.commit(0, prepared) == set(), "a commit that is made again is done"
    assert visible(target) == 200


def test_a_lease_that_ran_out_loses_the_transaction_and_says_so(server: PravegaServer, target: dict[str, str]) -> None:
    name = killed_worker(server, target, 0, SHORTEST_LEASE_MS)
    with closing(Controller(server.address)) as controller:
        stream = Stream.named(target["output"])
        assert controller.state(stream, name) == OPEN
        deadline = time.monotonic() + 60
        while controller.state(stream, name) != ABORTED:
            assert time.monotonic() < deadline, "the controller did not abort it"
            time.sleep(0.2)
    with closing(sink(target)) as driver:
        assert driver.commit(0, {0: {"transaction": name}}) == {0}
    assert visible(target) == 0


@pytest.mark.parametrize("lease_ms", [1000, 3_600_000])
def test_a_lease_that_the_controller_does_not_take_is_refused_at_the_start(
    target: dict[str, str], lease_ms: int
) -> None:
    with (
        closing(sink(target, lease_ms)) as driver,
        pytest.raises(RefusedStart, match=rf"lease of {lease_ms} ms.*Set transaction_timeout_ms"),
    ):
        driver.start(SUPPORTS["two-phase"], 1, [])


def test_a_batch_that_outlives_its_lease_names_it(target: dict[str, str]) -> None:
    def last_row_comes_late() -> Iterator[pa.RecordBatch]:
        yield rows("a")
        time.sleep(SHORTEST_LEASE_MS / 1000 + 3)  # the controller aborted transactions up to 0.3 s after their lease
        yield rows("b")

    with closing(sink(target, SHORTEST_LEASE_MS)) as driver, pytest.raises(TransactionTooSlow) as failed:
        driver.prepare_writer().write(Task(), last_row_comes_late())
    assert isinstance(failed.value.__cause__, SegmentError)


def test_the_largest_row_arrives(target: dict[str, str]) -> None:
    head, end = b'{"session_key":"', b'"}'
    values = [head + b"a" + end, head + b"x" * (EVENT_BYTES - len(head + end)) + end, head + b"b" + end]
    large = pa.RecordBatch.from_pydict({"key": [b"k"] * 3, "value": values})
    with closing(sink(target)) as driver:
        driver.acknowledged_writer().write(Task(), iter([large]))
    assert visible(target) == 3


def test_a_stream_that_is_there_or_has_a_bad_name_is_not_provided(target: dict[str, str], tmp_path: Path) -> None:
    for name in (target["output"].split("/")[1], "no name"):
        with pytest.raises(RefusedStart, match="makes no stream"):
            SINK.provide(place(name, tmp_path))


def test_the_service_uses_a_named_server_and_refuses_one_that_does_not_answer(
    server: PravegaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, server.address)
    with SERVICES[0].open(tmp_path):
        assert os.environ[VARIABLE] == server.address
    assert server.alive
    monkeypatch.setenv(VARIABLE, "127.0.0.1:1")
    with pytest.raises(MissingEnvironment, match=r"127\.0\.0\.1:1 cannot be used"):
        SERVICES[0].open(tmp_path).__enter__()
