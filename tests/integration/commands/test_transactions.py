"""`oncebench transactions` ends what a dead two-phase job left open.

No row is lost or duplicated.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.errors import UserError
from oncebench.jobs import transactions
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.kafka.drivers.left import KafkaTransactions
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.postgres.left import PostgresTransactions
from tests import ROOT
from tests.reading import read_all
from tests.small_job import PARTITIONS, SmallJob, values_of
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

LIMIT_S = 60
NOTHING = "no open transactions\n"


class World:
    """A job with an output of its own, and the command.

    Attributes:
        places: the options that name the server.
        visible: counts the visible rows. It waits for open transactions to end: Kafka answers a commit some
            milliseconds before the rows are visible. `settle_s=0` is for a transaction that must still be open.
    """

    def __init__(self, job: SmallJob, places: list[str], visible: Callable[..., Counter[str]]) -> None:
        self.job, self.places, self.visible = job, places, visible

    @property
    def checkpoint(self) -> Path:
        return Path(self.job.checkpoint)

    def runs(self, **asked: Any) -> subprocess.CompletedProcess[str]:
        """Runs the job until it ends or dies."""
        with self.started(**asked) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def dies_at(self, point: str, **asked: Any) -> None:
        done = self.runs(die_at=point, **asked)
        assert done.returncode == -9, done.stderr

    def goes_on(self) -> None:
        done = self.runs()
        assert done.returncode == 0, done.stderr

    @contextmanager
    def started(self, **asked: Any) -> Iterator[subprocess.Popen[str]]:
        job = SmallJob(**{**self.job.__dict__, **asked})
        pipe = subprocess.PIPE
        with subprocess.Popen(job.words(), cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def asks(self, *words: str, checkpoint: Path | None = None) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of the command."""
        job = ["--checkpoint", str(checkpoint or self.checkpoint)]
        return self.asks_for(job, *words)

    def asks_for(self, job: list[str], *words: str, output: str = "") -> tuple[int, str, str]:
        whole = ["transactions", *words, *job, "--output", output or self.job.output, *self.places]
        result = CliRunner().invoke(cli, whole)
        if isinstance(result.exception, UserError):
            return result.exception.exit_code, result.stdout, f"{result.stderr}{result.exception}"
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    def ends(self, *job: str) -> None:
        """Waits until no transaction is listed: Kafka ends one some milliseconds after its answer."""
        wait_for("the transactions to end", lambda: not self.listed(*job))

    def listed(self, *job: str) -> list[dict[str, Any]]:
        code, out, err = self.asks_for(list(job), "list", "--json") if job else self.asks("list", "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "WATCH_S", 0.2)


@pytest.fixture
def on_kafka(kafka: KafkaBroker, tmp_path: Path) -> World:
    topic = kafka.fresh_topic("out", PARTITIONS)
    client = {"bootstrap.servers": kafka.bootstrap_servers}

    def visible(settle_s: float = LIMIT_S) -> Counter[str]:
        rows = read_all(KafkaReader(kafka.bootstrap_servers, topic), settle_s)
        return Counter((value or b"").decode() for value in rows.value)

    job = SmallJob("kafka", topic, topic, str(tmp_path / "checkpoint"), kafka=client)
    return World(job, ["--bootstrap-servers", kafka.bootstrap_servers], visible)


@pytest.fixture
def on_postgres(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv(VARIABLE, server.dsn)
    name = f"t{time.time_ns():x}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {name} (key text, value text)")

    def visible(settle_s: float = 0.0) -> Counter[str]:
        del settle_s  # PostgreSQL answers a commit when its rows are visible
        with psycopg.connect(server.dsn) as connection:
            return Counter(value for (value,) in connection.execute(f"SELECT value FROM {name}").fetchall())

    return World(SmallJob("postgres", name, name, str(tmp_path / "checkpoint")), [], visible)


@pytest.fixture(params=["kafka", pytest.param("postgres", marks=pytest.mark.slow)])
def world(request: pytest.FixtureRequest) -> World:
    found = request.getfixturevalue(f"on_{request.param}")
    assert isinstance(found, World)
    return found


def once(*batches: int) -> Counter[str]:
    return Counter(value for batch in batches for p in range(PARTITIONS) for value in values_of(batch, p))


def test_what_is_undecided_can_only_be_aborted_and_a_start_writes_it_again(world: World) -> None:
    world.dies_at("before-decision")
    before = world.listed()
    assert [(row["batch"], row["decision"]) for row in before] == [(0, "undecided")] * PARTITIONS
    assert all(0 <= row["age_s"] < LIMIT_S for row in before)
    code, out, _ = world.asks("commit", "--yes")
    assert (code, out.count("a commit would duplicate")) == (2, PARTITIONS)
    code, out, err = world.asks("abort")
    assert (code, out.count("would be aborted"), "nothing was changed" in err) == (0, PARTITIONS, True)
    assert [row["transaction"] for row in world.listed()] == [row["transaction"] for row in before]
    assert not list(world.checkpoint.glob("journal/ended-*"))
    code, out, err = world.asks("abort", "--yes")
    assert (code, out.count("  aborted"), err) == (0, PARTITIONS, "")
    world.ends()
    assert world.asks("abort", "--yes")[:2] == (0, NOTHING)
    (note,) = (json.loads(path.read_text()) for path in world.checkpoint.glob("journal/ended-*"))
    assert (note["asked"], note["generation"], len(note["transactions"])) == ("abort", 2, PARTITIONS)
    assert world.visible() == Counter()
    world.goes_on()
    assert world.visible() == once(0)


def test_what_is_decided_can_only_be_committed_and_a_start_does_not_write_it_again(world: World) -> None:
    world.dies_at("after-decision")
    assert [(row["batch"], row["partitions"], row["decision"]) for row in sorted_(world)] == [
        (0, [0], "commit"), (0, [1], "commit"),
    ]  # fmt: skip
    code, out, _ = world.asks("abort", "--yes")
    assert (code, out.count("an abort would lose its rows")) == (2, PARTITIONS)
    code, out, err = world.asks("commit")
    assert (code, out.count("would be committed"), "nothing was changed" in err) == (0, PARTITIONS, True)
    assert world.visible(settle_s=0) == Counter()
    code, out, _ = world.asks("commit", "--yes")
    assert (code, out.count("  committed")) == (0, PARTITIONS)
    assert world.visible() == once(0)
    world.ends()
    assert world.asks("commit", "--yes")[:2] == (0, NOTHING)
    world.goes_on()
    assert world.visible() == once(0)
    world.goes_on()
    assert world.visible() == once(0, 1)


def test_a_transaction_that_tasks_share_is_committed_as_one(on_kafka: World) -> None:
    on_kafka.dies_at("after-decision", workers=1)
    (found,) = on_kafka.listed()
    assert (found["batch"], found["partitions"], found["decision"]) == (0, [0, 1], "commit")
    code, out, _ = on_kafka.asks("commit", "--yes")
    assert (code, out.count("  committed")) == (0, 1)
    assert on_kafka.visible() == once(0)
    on_kafka.goes_on()
    assert on_kafka.visible() == once(0)


def test_the_rest_of_a_batch_that_is_committed_in_part_is_committed(world: World) -> None:
    world.dies_at("mid-commit")
    # The first partition's transaction may still be about to end.
    wait_for(
        "one transaction", lambda: [(row["partitions"], row["decision"]) for row in world.listed()] == [([1], "commit")]
    )
    assert world.asks("commit", "--yes")[0] == 0
    assert world.visible() == once(0)
    world.goes_on()
    assert world.visible() == once(0)


def test_the_next_batch_under_a_committed_decision_is_undecided(world: World) -> None:
    world.goes_on()
    world.dies_at("after-prepare")
    assert {(row["batch"], row["decision"]) for row in world.listed()} == {(1, "undecided")}
    assert world.asks("abort", "--yes")[0] == 0
    world.goes_on()
    assert world.visible() == once(0, 1)


def test_a_call_that_dies_half_way_is_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.dies_at("after-decision")
    opened = {"kafka": KafkaTransactions, "postgres": PostgresTransactions}[world.job.sink]
    with monkeypatch.context() as dying:
        commit = opened.commit

        def half(self: Any, chosen: Any) -> Any:
            commit(self, chosen[:1])
            raise KeyboardInterrupt

        dying.setattr(opened, "commit", half)
        assert CliRunner().invoke(cli, ["transactions", "commit", "--yes", "--checkpoint", world.job.checkpoint,
                                        "--output", world.job.output, *world.places]).exit_code == 1  # fmt: skip
    wait_for("the first transaction to end", lambda: len(world.listed()) == PARTITIONS - 1)
    assert world.asks("commit", "--yes")[0] == 0
    assert world.visible() == once(0)
    world.goes_on()
    assert world.visible() == once(0)
    assert len(list(world.checkpoint.glob("journal/ended-*"))) == 2


def test_a_job_that_runs_on_this_machine_is_refused(world: World) -> None:
    with world.started(wait_at="after-decision") as process:
        assert process.stdout is not None
        process.stdout.readline()
        code, _, err = world.asks("list")
        assert (code, "note: the job still runs" in err) == (0, True)
        for words in (("commit",), ("commit", "--yes"), ("abort", "--yes")):
            code, out, err = world.asks(*words)
            assert (code, out, f"process {process.pid} (" in err) == (2, "", True)
        out, err = process.communicate("go on\n", timeout=LIMIT_S)
        assert process.returncode == 0, err
    assert world.visible() == once(0)


def test_a_job_with_sessions_in_postgres_is_refused_wherever_it_runs(on_postgres: World) -> None:
    with on_postgres.started(wait_at="before-decision") as process:
        assert process.stdout is not None
        process.stdout.readline()
        elsewhere(on_postgres)
        code, _, err = on_postgres.asks("abort", "--yes")
        assert (code, "it has session " in err, "pg_terminate_backend" in err) == (2, True, True)
        process.communicate("go on\n", timeout=LIMIT_S)
    assert on_postgres.visible() == once(0)


def test_a_job_whose_transactions_begin_meanwhile_is_refused(on_kafka: World, monkeypatch: pytest.MonkeyPatch) -> None:
    on_kafka.dies_at("before-decision")
    with ExitStack() as running:

        def start(_seconds: float) -> None:
            process = running.enter_context(on_kafka.started(wait_at="before-decision"))
            assert process.stdout is not None
            process.stdout.readline()

        monkeypatch.setattr(transactions, "time", SimpleNamespace(sleep=start))
        code, _, err = on_kafka.asks("abort", "--yes")
    assert (code, "began while this command looked" in err) == (2, True), err


def test_a_driver_that_sleeps_can_decide_nothing_after_an_abort(on_kafka: World) -> None:
    with on_kafka.started(wait_at="before-decision") as process:
        assert process.stdout is not None
        process.stdout.readline()
        elsewhere(on_kafka)
        assert on_kafka.asks("abort", "--yes")[0] == 0
        _, err = process.communicate("go on\n", timeout=LIMIT_S)
        assert (process.returncode, "AnotherDriver" in err) == (1, True), err
    assert on_kafka.visible() == Counter()
    on_kafka.goes_on()
    assert on_kafka.visible() == once(0)


def test_without_the_checkpoint_only_an_accepted_loss_allows_an_abort(world: World) -> None:
    world.dies_at("after-decision")
    shutil.rmtree(world.checkpoint)
    job = ["--sink", world.job.sink, "--sink-id", world.job.sink_id]
    assert {row["decision"] for row in world.listed(*job)} == {"unknown"}
    assert world.asks_for(job, "commit", "--yes")[0] == 2
    code, _, err = world.asks_for(job, "abort", "--yes")
    assert (code, "are then lost for good" in err) == (2, True)
    code, out, _ = world.asks_for(job, "abort", "--accept-loss", "--yes")
    assert (code, out.count("  aborted")) == (0, PARTITIONS)
    world.ends(*job)
    assert world.asks_for(job, "list")[:2] == (0, NOTHING)
    assert world.visible() == Counter()


def test_a_decided_transaction_that_kafka_has_aborted_is_named_and_written_again(on_kafka: World) -> None:
    on_kafka.dies_at("after-decision", timeout_ms=1000)
    with Coordinator({"bootstrap_servers": on_kafka.places[1]}) as coordinator:
        sink_id = on_kafka.job.sink_id
        wait_for("the time-out", lambda: {txn.state for txn in coordinator.listed(sink_id)} == {"CompleteAbort"})
    assert [(row["state"], row["decision"], row["partitions"]) for row in on_kafka.listed()] == [
        ("lost", "commit", [0]), ("lost", "commit", [1]),
    ]  # fmt: skip
    code, out, _ = on_kafka.asks("commit", "--yes")
    assert (code, out.count("a start of the job writes its rows again")) == (1, PARTITIONS)
    on_kafka.goes_on()
    assert on_kafka.visible() == once(0)
    assert on_kafka.listed() == []


def test_an_older_copy_of_the_checkpoint_and_another_output_are_refused(world: World, tmp_path: Path) -> None:
    world.goes_on()
    older = Path(shutil.copytree(world.checkpoint, tmp_path / "older"))
    world.goes_on()
    world.dies_at("after-decision")
    for words in (("list",), ("abort", "--yes")):
        code, _, err = world.asks(*words, checkpoint=older)
        assert (code, "has no batch after 0" in err) == (2, True), err
    (older / "offsets" / "1").touch()
    code, _, err = world.asks("abort", "--yes", checkpoint=older)
    assert (code, "has no decision about it" in err) == (2, True), err
    job = ["--checkpoint", world.job.checkpoint]
    code, _, err = world.asks_for(job, "list", output="there-is-none")
    assert (code, "finds no output 'there-is-none'" in err) == (2, True), err
    places = world.checkpoint / "journal" / "places.json"
    recorded = json.loads(places.read_text())
    part = sorted(recorded["output"])[0]
    recorded["output"][part] = "another"
    places.write_text(json.dumps(recorded))
    code, _, err = world.asks("list")
    assert (code, f"output/{part}:another.." in err) == (2, True), err


def sorted_(world: World) -> list[dict[str, Any]]:
    return sorted(world.listed(), key=lambda row: row["partitions"])


def elsewhere(world: World) -> None:
    """Makes the newest start one of another machine."""
    newest = max(world.checkpoint.glob("journal/generation-*"))
    newest.write_text(json.dumps(json.loads(newest.read_text()) | {"host": f"not-{os.uname().nodename}"}))
