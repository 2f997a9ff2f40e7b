"""A job without Spark, that dies or waits where it is asked to.

    python -m tests.small_job JSON

Each start delivers the open batch, or the next one, by the real protocol into the real sink. The batch has
ROWS rows in each partition. Without an argument the program reads lines of standard input. Each line is a list
of starts, and the program makes each of them in a process of its own and prints a line with their exit codes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import pandas  # noqa: F401  pyarrow imports it with its first array, in each fork anew
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from oncebench.delivery import digest
from oncebench.delivery.contract import EXACTLY_ONCE, RECORDS, SinkSettings, Writer, Written
from oncebench.delivery.decisions import REWRITE
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import open_journal
from oncebench.delivery.protocols import choose, protocol_of
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.places import Places
from oncebench.delivery.tasks import Task
from oncebench.jobs.checkpoint import last_batch, open_batch
from oncebench.jobs.output import OutputChecks, Target
from oncebench.jobs.start import identity_of, start_sink
from oncebench.sinks.files.formats import LINE
from oncebench.sinks.kafka.rows import writers
from oncebench.sinks.registry import SINKS

PARTITIONS, ROWS = 2, 3
SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])
WAITING = "waiting"
COMMAND = (sys.executable, "-m", "tests.small_job")


@dataclass(frozen=True)
class SmallJob:
    """One start.

    Attributes:
        die_at: the failpoint at which it kills itself.
        wait_at: the failpoint at which it prints WAITING and waits for a line.
        width: characters of each key.
        workers: the number of workers among which the partitions are divided.
    """

    sink: str
    sink_id: str
    output: str
    checkpoint: str
    guarantee: str = EXACTLY_ONCE
    variant: str = "two-phase"
    kafka: Mapping[str, Any] = field(default_factory=dict)
    timeout_ms: int = 60_000
    die_at: str = ""
    wait_at: str = ""
    width: int = 0
    workers: int = PARTITIONS

    def words(self) -> list[str]:
        return [*COMMAND, json.dumps(asdict(self))]

    def run(self) -> None:
        kind = SINKS[self.sink]
        support = choose(kind, self.guarantee, self.variant)
        checkpoint = Path(self.checkpoint)
        target = Target(kind, support, self.sink_id, self.output, checkpoint)
        settings = SinkSettings(
            {"output": self.output}, self.sink_id, PARTITIONS, checkpoint, self.kafka, self.timeout_ms,
            row_id=("value",), variant=self.variant,
        )  # fmt: skip
        journal = open_journal(checkpoint, identity_of(target, PARTITIONS), settings.driver)
        checks = OutputChecks(target, journal, Gaps(journal.folder, None), Places(journal.folder))
        sink = kind.open(settings)
        sink.check_schema(SCHEMA)
        opened = open_batch(checkpoint)
        start_sink(sink, target, journal, checks)
        checks.record(sink)
        number = last_batch(checkpoint) + 1 if opened is None else opened
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(exist_ok=True)
        (checkpoint / "offsets" / str(number)).touch()
        batch = SmallBatch(self, number)
        batch.failpoint("batch-start")
        protocol_of(kind, support)(cast("Any", batch), sink, journal, REWRITE)
        batch.failpoint("after-commit")
        (checkpoint / "commits" / str(number)).touch()
        sink.close()


@dataclass
class SmallBatch:
    """What a protocol asks of a batch."""

    job: SmallJob
    id: int
    dropped: Collection[int] = ()
    # Kafka's writers keep their producers in their process. This process stands for several.
    producers: list[dict[str, Any]] = field(default_factory=lambda: [{} for _ in range(PARTITIONS)])

    def failpoint(self, point: str) -> None:
        if point == self.job.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if point == self.job.wait_at:
            print(WAITING, flush=True)
            sys.stdin.readline()

    def asks_for(self, point: str) -> bool:
        return point in (self.job.die_at, self.job.wait_at)

    @contextmanager
    def timed(self, _step: str) -> Iterator[None]:
        yield

    def run(self, writer: Writer, only: Collection[int] | None = None, expected: object = None) -> list[Written]:
        return [self.write(writer, p) for p in range(PARTITIONS) if only is None or p in only]

    def write(self, writer: Writer, partition: int) -> Written:
        task = Task(self.id, partition, InLastTask((), Path("/dev/null"), None, of=self), cast("Any", None))
        writers._producers = self.producers[partition % self.job.workers]
        prepared, _ = writer.write(task, task.take(iter([self.rows(partition)])))
        return Written(partition, task.rows, task.digest, prepared)

    def drain(self, expected: object = None, keep: bool = False) -> None:
        """Rows come from nowhere: there is nothing to consume."""

    def rows(self, partition: int) -> pa.RecordBatch:
        """The rows as the JVM encodes them for the sink."""
        values = values_of(self.id, partition)
        columns = {"key": [value.ljust(self.job.width) for value in values], "value": values}
        if self.job.sink in ("files-jsonl", "broken-files"):
            lines = zip(*columns.values(), strict=True)
            columns = {LINE: [json.dumps(dict(zip(columns, line, strict=True))) for line in lines]}
        kind = pa.binary() if SINKS[self.job.sink].takes == RECORDS else pa.string()
        made = {name: pa.array(column, pa.string()).cast(kind) for name, column in columns.items()}
        return pa.record_batch({**made, digest.HASH: pa.array(list(range(ROWS)), pa.int64())})


@dataclass(frozen=True)
class InLastTask(Failpoints):
    """The failpoints of a task: only the last task dies or waits.

    By then the other tasks have done their work.
    """

    of: SmallBatch = field(kw_only=True)

    def asks_for(self, point: str) -> bool:
        return self.of.asks_for(point)

    def reach(self, point: str, batch: int, rows: int | None = None, partition: int | None = None) -> None:
        if partition == PARTITIONS - 1:
            self.of.failpoint(point)


def values_of(batch: int, partition: int) -> list[str]:
    """The values of the rows of one partition."""
    return [f"{batch}-{partition}-{row}" for row in range(ROWS)]


def exit_code(start: SmallJob) -> int:
    """Makes a start in a fork of this process, which has imported everything and opened nothing."""
    child = os.fork()
    if not child:
        start.run()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(words: list[str]) -> None:
    if words:
        SmallJob(**json.loads(words[0])).run()
        return
    for line in sys.stdin:
        print(json.dumps([exit_code(SmallJob(**start)) for start in json.loads(line)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
