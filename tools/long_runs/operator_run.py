"""Runs one cell while an operator changes its servers.

The changes are restarts of servers, changed topics, a deleted consumer group of another program, prepared transactions
that fill PostgreSQL's slots, and input records that are no events.

    python -m tools.long_runs.operator_run [--minutes 30] [--seed 1] [--sink kafka] [--rate 2000]
        [--every 30] [--only NAME ...]

Takes the given minutes, plus two to five for start, last rows and audit.

None of these operations is a fault at a failpoint: they come at fixed intervals, whatever the pipeline does. The seed
decides their order and their choices. The run itself, its audit and its report are those of `oncebench run`. At the end
the tool prints the report, and each operation with its time. It also prints each death of the pipeline with its last
message, and the longest time without a committed batch. Exit code: that of `oncebench run`; 130 after Ctrl-C or
SIGTERM. After a Ctrl-C before the load, or a second Ctrl-C, it prints one sentence and no report.

Promise: each operation is undone HOLD_S later, and at the end of the load at the latest. The next one waits for that.
Failure mode: if an operation fails by itself, the tool prints its error, and the run goes on. If an operation cannot be
undone, the tool tries this again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType
from psycopg import sql

from oncebench.errors import ExitCode, UserError
from oncebench.experiments.workspace import bytes_needed
from oncebench.faults.server import KAFKA, POSTGRES
from oncebench.lab.lab import Lab, open_lab
from oncebench.live.status import LOADING, Phase, RunStatus
from oncebench.live.streams import outlive_readers
from oncebench.live.view import view
from oncebench.measure import BULKY, exit_code, measure
from oncebench.record import events
from oncebench.record.json_lines import read_lines
from oncebench.report.results import default_work_dir
from oncebench.report.schema import Report
from oncebench.report.summary import summary
from oncebench.run.interrupt import gently
from oncebench.scenario.cell import Cell
from oncebench.sinks.postgres.connection import connect
from oncebench.sinks.registry import suite_sinks
from oncebench.workdir import delete_below, open_work_dir, require_free

HOLD_S = 20.0  # shorter than the interval, so that the pipeline also has healthy times
AGAIN_S = 2.0  # until the next attempt to undo
ANSWER_S = 60.0  # for one request; a broker that was restarted on a busy machine was seen to take 36 s
MOST_PARTITIONS = 12  # of the input; each more makes a batch's plan longer, and shows nothing new
# Settings that an operator may change and change back: topic of the run, setting, value meanwhile. None of them deletes
# records: a deletion would be a loss that the operator ordered.
SETTINGS = (
    ("input", "min.insync.replicas", "2"),
    ("input", "flush.messages", "1"),
    ("input", "segment.bytes", "1048576"),
    ("quarantine", "min.insync.replicas", "2"),
    ("quarantine", "max.message.bytes", "2000"),
    ("output", "min.insync.replicas", "2"),
    ("output", "compression.type", "gzip"),
    ("output", "segment.bytes", "1048576"),
)
# Records that are no events of a session. The longest is longer than a lowered limit of the quarantine topic.
GARBAGE: tuple[tuple[bytes | None, bytes | None], ...] = (
    (None, b"no key"), (b"garbage", None), (b"garbage", b"not json"), (b"garbage", b"\xff\xff"), (b"garbage", b"{}"),
    (b"garbage", b'{"session_key": "other", "seq": 1}'), (b"garbage", b"x" * 100_000),
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """What an operator works on: servers and topics of the run, and random choices.

    Attributes:
        topics: `input`, `quarantine` and, for a sink that writes to a topic, `output`.
    """

    lab: Lab
    topics: Mapping[str, str]
    random: random.Random


Undo = Callable[[], None]


@dataclass(frozen=True)
class Operation:
    """One kind of work of an operator.

    Attributes:
        do: does it; returns what was done, in words, and what undoes it.
        server: the server on which it works. A run without that server does not have the operation.
    """

    name: str
    do: Callable[[Site], tuple[str, Undo]]
    server: str = KAFKA


def restart(server: str, site: Site) -> tuple[str, Undo]:
    """Shuts a server down cleanly and starts it again."""
    began = time.monotonic()
    site.lab.servers[server].stop()
    site.lab.servers[server].start()
    return f"back after {time.monotonic() - began:.1f} s", _nothing


def delete_foreign_group(site: Site) -> tuple[str, Undo]:
    """Deletes a consumer group of another program on the input topic."""
    admin, servers, group = (
        site.lab.kafka.admin(),
        site.lab.kafka.bootstrap_servers,
        f"foreign-{site.random.randrange(10**6)}",
    )
    with closing(Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})) as consumer:
        consumer.commit(offsets=[TopicPartition(site.topics["input"], 0, 1)], asynchronous=False)
    admin.delete_consumer_groups([group], request_timeout=ANSWER_S)[group].result(ANSWER_S)
    return group, _nothing


def alter_setting(site: Site) -> tuple[str, Undo]:
    """Changes one setting of one topic of the run, and later puts the earlier value back."""
    topic, name, value = site.random.choice([each for each in SETTINGS if each[0] in site.topics])
    resource = ConfigResource(ResourceType.TOPIC, site.topics[topic])
    admin = site.lab.kafka.admin()  # kept in a variable: a client that is gone answers nothing
    found = admin.describe_configs([resource], request_timeout=ANSWER_S)[resource].result(ANSWER_S)
    before = found[name].value
    _set(site, topic, name, value)
    return f"{name} of the {topic} topic from {before} to {value}", partial(_set, site, topic, name, before)


def add_partition(site: Site) -> tuple[str, Undo]:
    """Adds a partition to the input topic, which cannot be undone."""
    admin, topic = site.lab.kafka.admin(), site.topics["input"]
    count = len(admin.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions)
    if count == MOST_PARTITIONS:
        return f"the input topic has {count} partitions already", _nothing
    admin.create_partitions([NewPartitions(topic, count + 1)], request_timeout=ANSWER_S)[topic].result(ANSWER_S)
    return f"the input topic has {count + 1} partitions", _nothing


def send_garbage(site: Site) -> tuple[str, Undo]:
    """Sends records that are no events to the input topic."""
    producer = Producer({"bootstrap.servers": site.lab.kafka.bootstrap_servers, "log_level": 0})
    sent = site.random.choices(GARBAGE, k=50)
    for key, value in sent:
        producer.produce(site.topics["input"], key=key, value=value)
    if left := producer.flush(ANSWER_S):
        raise UserError(f"the broker did not take {left} of {len(sent)} records within {ANSWER_S:g} s")
    return f"{len(sent)} records", _nothing


def fill_slots(_site: Site) -> tuple[str, Undo]:
    """Prepares empty transactions until PostgreSQL has no slot left, and later rolls them back."""
    prefix, count = f"operator-{time.time_ns()}-", 0
    with closing(connect("oncebench.operator")) as connection:
        while True:
            connection.execute("BEGIN")
            try:
                connection.execute(_statement("PREPARE TRANSACTION {}", f"{prefix}{count}"))
            except psycopg.errors.OutOfMemory:  # the code of a full table of prepared transactions
                connection.execute("ROLLBACK")
                return f"{count} prepared transactions", partial(_free_slots, prefix)
            count += 1


OPERATIONS = (
    Operation("restart-broker", partial(restart, KAFKA)),
    Operation("restart-postgres", partial(restart, POSTGRES), POSTGRES),
    Operation("delete-foreign-group", delete_foreign_group),
    Operation("alter-setting", alter_setting),
    Operation("fill-slots", fill_slots, POSTGRES),
    Operation("add-partition", add_partition),
    Operation("send-garbage", send_garbage),
)


def planned(seed: int, count: int, servers: Sequence[str], only: Sequence[str] = ()) -> list[Operation]:
    """Returns the operations of a run in their order. The same arguments give the same order."""
    possible = [each for each in OPERATIONS if each.server in servers and (not only or each.name in only)]
    return random.Random(seed).choices(possible, k=count)


class Operator:
    """Does the planned operations while the load runs, one at a time.

    Args:
        folder: of the run.
        every_s: seconds from one operation to the next.
        done: called with each line of the log.
    """

    def __init__(
        self, lab: Lab, folder: Path, plan: Sequence[Operation], every_s: float, seed: int, done: Callable[[str], None]
    ) -> None:
        self._lab, self._folder, self._every_s, self._seed, self._done = lab, folder, every_s, seed, done
        self._left = list(plan)
        self._next_s = 0.0
        self._site: Site | None = None
        self._held: tuple[float, str, Undo] | None = None

    def look(self, phase: Phase) -> None:
        """Does or undoes what is due. A run calls this at each look, from one thread."""
        now = time.monotonic()
        if phase != LOADING:
            self.undo()
        elif self._site is None:
            self._site = Site(self._lab, _topics(self._folder), random.Random(self._seed))
            self._next_s = now + self._every_s
        elif self._held is not None and now >= self._held[0]:
            self.undo()
        elif self._left and self._held is None and now >= self._next_s:
            self._next_s = now + self._every_s
            self._do(self._left.pop(0), self._site)

    def undo(self) -> None:
        """Undoes the newest operation, if that was not done yet."""
        if self._held is not None:
            (_, name, undo), self._held = self._held, None

            def attempt() -> str:
                undo()
                return "undone"

            if not self._attempt(name, attempt):
                self._held = (time.monotonic() + AGAIN_S, name, undo)

    def _do(self, operation: Operation, site: Site) -> None:
        def do() -> str:
            what, undo = operation.do(site)
            if undo is not _nothing:
                self._held = (time.monotonic() + HOLD_S, operation.name, undo)
            return what

        self._attempt(operation.name, do)

    def _attempt(self, name: str, work: Callable[[], str]) -> bool:
        at = time.strftime("%H:%M:%S")
        try:
            self._done(f"{at} {name}: {work()}")
        except (KafkaException, psycopg.Error, UserError, TimeoutError) as error:
            self._done(f"{at} {name} FAILED: {str(error) or 'no answer in time'}")
            return False
        return True


def deaths(folder: Path) -> list[str]:
    """Returns a line for each death of the pipeline that nobody requested, with its last words."""
    died = [line for line in read_lines(folder / "timeline.jsonl").items if line["event"] == events.PIPELINE_FAILED]
    return [f"{_clock(line['t_us'])} exit code {line['exit_code']}: {line['why']}" for line in died]


def longest_stall(folder: Path) -> tuple[float, str] | None:
    """Returns the longest time between two committed batches in seconds, and when it began."""
    lines = [line for line in read_lines(folder / "progress.jsonl").items if line["kind"] == "batch"]
    times = sorted(line["t_us"] for line in lines)
    stalls = [((later - earlier) / 1e6, _clock(earlier)) for earlier, later in pairwise(times)]
    return max(stalls, default=None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cell and prints what happened; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        report = _run(options)
    except KeyboardInterrupt:
        print("interrupted: there is no report", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return ExitCode.INTERRUPTED if report["interrupted"] else exit_code([report])


def _run(options: argparse.Namespace) -> Report:
    """Runs the cell, prints what happened, and returns the report.

    Everything that it started is gone at the end.
    """
    count = int(options.minutes * 60 / options.every)
    sessions = round(options.rate * options.minutes * 60 / 100)
    cell = Cell(options.sink, "exactly-once", "two-phase", rate=options.rate, sessions=sessions, seed=options.seed)
    servers = (KAFKA, *suite_sinks()[cell.sink].traits.services)
    log: list[str] = []
    with open_work_dir(options.work_dir or default_work_dir("operator")) as work, gently() as interrupted:
        require_free(work.path, bytes_needed([cell]))
        with open_lab(work.path, None, [cell.sink]) as lab, view(cell.brief) as show:

            def done(line: str) -> None:
                log.append(line)
                print(line, file=sys.stderr, flush=True)

            plan = planned(options.seed, count, servers, options.only)
            operator = Operator(lab, work.path, plan, options.every, options.seed, done)

            def shown(status: RunStatus) -> None:
                operator.look(status.phase)
                show(status)

            report = measure(cell, lab, work.path, shown, interrupted)
        died, stall = deaths(work.path), longest_stall(work.path)
        print(summary(report, work.path))
        print(f"\n{len(log)} lines of the operator, seed {options.seed}:", *log, sep="\n  ")
        print(f"\n{len(died)} deaths that nobody requested:", *died, sep="\n  ")
        if stall is not None:
            print(f"\nlongest time without a committed batch: {stall[0]:.1f} s, from {stall[1]}")
        if report["verdict"] == "kept":
            for name in BULKY:
                delete_below(work.path, work.path / name)
    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.long_runs.operator_run")
    parser.add_argument("--minutes", type=float, default=30.0, help="Duration of the load in minutes.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the load and of the operations.")
    parser.add_argument("--sink", choices=("kafka", "postgres"), default="kafka", help="Sink that the pipeline uses.")
    parser.add_argument("--rate", type=float, default=2000.0, help="Events per second.")
    parser.add_argument("--every", type=float, default=30.0, help="Seconds from one operation to the next.")
    parser.add_argument("--only", nargs="*", default=[], choices=[each.name for each in OPERATIONS],
                        help="Operations to choose from; all by default.")  # fmt: skip
    parser.add_argument("--work-dir", type=Path, help="Folder of the run; a new one by default.")
    return parser


def _topics(folder: Path) -> dict[str, str]:
    described: dict[str, Any] = json.loads((folder / "cell.json").read_bytes())
    found: dict[str, str] = described["topics"]
    return found if described["cell"]["sink"] == KAFKA else {name: found[name] for name in ("input", "quarantine")}


def _set(site: Site, topic: str, name: str, value: str | None) -> None:
    resource = ConfigResource(ResourceType.TOPIC, site.topics[topic])
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    admin = site.lab.kafka.admin()
    admin.incremental_alter_configs([resource], request_timeout=ANSWER_S)[resource].result(ANSWER_S)


def _free_slots(prefix: str) -> None:
    with closing(connect("oncebench.operator")) as connection:
        found = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE starts_with(gid, %s)", (prefix,)).fetchall()
        for (gid,) in found:
            connection.execute(_statement("ROLLBACK PREPARED {}", gid))


def _statement(text: str, gid: str) -> sql.Composed:
    return sql.SQL(text).format(sql.Literal(gid))


def _nothing() -> None:
    """Undoes an operation that leaves nothing to undo."""


def _clock(t_us: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(t_us / 1e6))


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
