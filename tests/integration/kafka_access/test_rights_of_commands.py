"""The commands that reach Kafka run with the printed rights only.

They name a right that is missing.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from oncebench.cli import cli
from oncebench.delivery.errors import DeliveryFailed, ReadError, RefusedStart
from oncebench.delivery.quarantine import Quarantine
from oncebench.errors import UserError
from oncebench.jobs import transactions
from oncebench.kafka_access.acls import Right
from oncebench.servers.kafka.rights import Load, Observer, OpenTransactions, Program, Requeue, Runs
from oncebench.sinks.kafka.coordinator import Coordinator
from oncebench.sinks.kafka.hanging_transactions import OFFSETS_TOPIC, Repair, end_hanging_transactions
from oncebench.sinks.kafka.reader import KafkaReader
from tests import ROOT
from tests.integration.kafka_access.guarded import Guarded, guarded_kafka
from tests.integration.kafka_access.runs import LOAD, command
from tests.integration.kafka_access.test_rights import named
from tests.integration.sinks.test_hanging_transactions import World
from tests.kafka_topics import rejected
from tests.small_job import PARTITIONS, SmallJob

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
LIMIT_S = 240  # a job of the test imports Spark, which takes a minute on a busy machine
Outcome = tuple[bool, str]
SAID = (UserError, RefusedStart, DeliveryFailed)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_kafka(tmp_path_factory.mktemp("guarded")) as found:
        yield found


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "WATCH_S", 0.2)


@dataclass(frozen=True)
class Case:
    """A user, and a topic with a record in it.

    Attributes:
        left: the checkpoint of a job that has left transactions open in the topic; empty: none has.
    """

    guarded: Guarded
    user: str
    topic: str
    folder: Path
    left: str = ""

    def asks(self, *words: str) -> Outcome:
        """Whether a command ends with exit code 0, and its text."""
        conf = str(self.guarded.file(self.folder, self.user))
        place = ("--bootstrap-servers", self.guarded.servers, "--kafka-conf", conf)
        result = CliRunner().invoke(cli, [*words, *place])
        said = str(result.exception) if isinstance(result.exception, SAID) else ""
        return result.exit_code == 0, f"{result.output}{said}"

    def ends(self, asked: str, *more: str) -> Outcome:
        return self.asks("transactions", asked, "--checkpoint", self.left, "--output", self.topic, *more)


def left_open(guarded: Guarded, topic: str, folder: Path, point: str) -> str:
    """Returns the checkpoint of a job that wrote to the topic and died at this point."""
    client = {"bootstrap.servers": guarded.broker.bootstrap_servers}
    job = SmallJob("kafka", topic, topic, str(folder / "cp"), kafka=client, die_at=point, timeout_ms=600_000)
    done = subprocess.run(job.words(), cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=False, text=True)
    assert done.returncode == -9, done.stderr
    return job.checkpoint


def load(case: Case, *topic: str) -> Outcome:
    return case.asks("load", "--sessions", "2", "--work-dir", str(case.folder / "load"), *topic)


def observe(case: Case) -> Outcome:
    try:
        with closing(KafkaReader.of(case.guarded.access(case.user).client, case.topic, sink_id=case.topic)) as reader:
            report = reader.read_to_end(lambda rows: None, settle_s=LIMIT_S)
            return report.complete and reader.leftovers() == [], report.note
    except ReadError as error:
        return False, str(error)


def requeue(case: Case) -> Outcome:
    """Sends a copy from the topic to another one."""
    case.guarded.broker.create_topic(f"{case.topic}-back", PARTITIONS)
    client = {"bootstrap.servers": case.guarded.broker.bootstrap_servers}
    quarantine = Quarantine(case.topic, case.topic, client)
    quarantine.copy(rejected([("any", 0, 0, None, b"first")]))
    quarantine.flush()
    return case.asks("requeue", "--quarantine", case.topic, "--reason", "any", "--to", f"{case.topic}-back")


@dataclass(frozen=True)
class Use:
    """A program with its rights, for a topic; and a use of it."""

    program: Callable[[str], Program]
    try_: Callable[[Case], Outcome]
    point: str = ""  # where a job has died before; empty: there is no job


USES: Mapping[str, Use] = {
    "load": Use(Load, lambda case: load(case, "--topic", case.topic)),
    "load-new": Use(lambda topic: Load(), load),
    "observer": Use(lambda topic: Observer(topic, topic), observe),
    "list": Use(lambda topic: OpenTransactions(topic, topic, ends=False), lambda case: case.ends("list"),
                "after-decision"),
    "commit": Use(lambda topic: OpenTransactions(topic, topic, ends=True),
                  lambda case: case.ends("commit", "--yes"), "after-decision"),
    "abort": Use(lambda topic: OpenTransactions(topic, topic, ends=True),
                 lambda case: case.ends("abort", "--yes"), "before-decision"),
    "requeue": Use(lambda topic: Requeue(topic, f"{topic}-back"), requeue),
}  # fmt: skip


def case_of(guarded: Guarded, folder: Path, point: str = "") -> Case:
    topic = guarded.broker.fresh_topic("t", PARTITIONS)
    producer = Producer({"bootstrap.servers": guarded.broker.bootstrap_servers})
    producer.produce(topic, b"first", partition=0)  # where the copy of `requeue` says that it is
    assert producer.flush(LIMIT_S) == 0
    left = left_open(guarded, topic, folder, point) if point else ""
    return Case(guarded, guarded.new_user(), topic, folder, left)


@pytest.fixture(scope="module")
def dead(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A job that died with decided transactions.

    It is for commands that are refused and so change nothing.
    """
    return case_of(guarded, tmp_path_factory.mktemp("dead"), "after-decision")


def needed(program: Program) -> list[Right]:
    return [right for right in program.rights() if not right.without]


@pytest.mark.parametrize("use", USES)
def test_a_user_with_only_its_rights_uses_the_command(guarded: Guarded, tmp_path: Path, use: str) -> None:
    case = case_of(guarded, tmp_path, USES[use].point)
    guarded.grant(case.user, needed(USES[use].program(case.topic)))
    done, said = USES[use].try_(case)
    assert done, said
    print(said)


MISSING = [(name, at) for name, use in USES.items() for at in range(len(needed(use.program("T"))))]


@pytest.mark.parametrize(("use", "at"), MISSING)
def test_a_command_names_the_right_that_is_missing(
    guarded: Guarded, dead: Case, tmp_path: Path, use: str, at: int
) -> None:
    case = replace(dead, user=guarded.new_user()) if USES[use].point else case_of(guarded, tmp_path)
    rights = needed(USES[use].program(case.topic))
    lacks = rights.pop(at)
    guarded.grant(case.user, rights)
    began = time.monotonic()
    done, said = USES[use].try_(case)
    print(f"{use} without {lacks.operation} on {lacks.on}: {time.monotonic() - began:.1f} s\n{said}")
    assert not done, said
    named(said, lacks)


@pytest.mark.parametrize("at", range(len(needed(Requeue("T", "T-back")))))
def test_requeue_names_a_right_also_if_the_user_may_describe_the_resource(
    guarded: Guarded, tmp_path: Path, at: int
) -> None:
    case = case_of(guarded, tmp_path)
    rights = needed(USES["requeue"].program(case.topic))
    lacks = rights[at]
    rights[at] = Right("Describe", lacks.on, lacks.why)
    guarded.grant(case.user, rights)
    began = time.monotonic()
    done, said = USES["requeue"].try_(case)
    print(f"requeue with only Describe on {lacks.on}: {time.monotonic() - began:.1f} s\n{said}")
    assert not done, said
    named(said, lacks)


def test_a_transaction_that_kafka_failed_to_end_needs_alter_on_the_cluster(guarded: Guarded, tmp_path: Path) -> None:
    world = World(guarded.broker)
    world.ends(commit=True)
    world.leaves_open()
    _, alter = [right for right in OpenTransactions(world.topic, world.sink_id, ends=True).rights() if right.without]
    user = guarded.new_user()
    guarded.grant(user, needed(OpenTransactions(world.topic, world.sink_id, ends=True)))

    def end() -> list[Repair]:
        with Coordinator.of(guarded.access(user).client) as coordinator:
            return end_hanging_transactions(coordinator, world.prefix, (world.topic, OFFSETS_TOPIC), world.notes, None)

    with pytest.raises(RefusedStart) as refused:
        end()
    print(refused.value)
    assert "--operation Alter --cluster" in str(refused.value)
    guarded.grant(user, [alter])
    (repair,) = end()
    assert repair.commit


def test_groups_topic_that_is_closed_is_left_out_with_a_warning(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(guarded.broker)
    world.ends(commit=True)
    rights = OpenTransactions(world.topic, world.sink_id, ends=True).rights()
    (find,) = (right for right in rights if right.on.name == OFFSETS_TOPIC)
    user = guarded.new_user()
    guarded.grant(user, needed(OpenTransactions(world.topic, world.sink_id, ends=True)))
    topics = (world.topic, OFFSETS_TOPIC)
    with Coordinator.of(guarded.access(user).client) as coordinator, caplog.at_level(logging.WARNING):
        assert end_hanging_transactions(coordinator, world.prefix, topics, world.notes, None) == []
        wanted = f"in topic {OFFSETS_TOPIC}: this user needs {find.operation} on it"
        assert wanted in caplog.text
        caplog.clear()
        guarded.grant(user, [find])
        assert end_hanging_transactions(coordinator, world.prefix, topics, world.notes, None) == []
        assert wanted not in caplog.text


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_a_run_needs_only_the_printed_rights(guarded: Guarded, tmp_path: Path, guarantee: str) -> None:
    user = guarded.new_user()
    result = CliRunner().invoke(cli, ["acls", "--for", "run", "--principal", f"User:{user}"])
    guarded.run(result.stdout)
    ended = run(guarded, tmp_path, user, guarantee)
    assert ended[0], ended[1]


@pytest.mark.parametrize("at", range(len(needed(Runs()))))
def test_a_run_names_the_right_that_is_missing(guarded: Guarded, tmp_path: Path, at: int) -> None:
    rights = needed(Runs())
    lacks = rights.pop(at)
    user = guarded.new_user()
    guarded.grant(user, rights)
    began = time.monotonic()
    done, said = run(guarded, tmp_path, user, "exactly-once")
    print(f"run without {lacks.operation} on {lacks.on}: {time.monotonic() - began:.1f} s\n{said}")
    assert not done, said
    assert f"--operation {lacks.operation} " in said


def run(guarded: Guarded, folder: Path, user: str, guarantee: str) -> Outcome:
    conf = str(guarded.file(folder, user))
    ended = command(folder, "run", "--sink", "kafka", "--guarantee", guarantee, *LOAD, "--bootstrap-servers",
                    guarded.servers, "--kafka-conf", conf, "--work-dir", "work")  # fmt: skip
    return ended.done.returncode == 0, ended.text
