"""A two-phase job without Spark, that dies or waits where it is asked to.

    python -m tests.small_job JSON

Each start delivers the open batch, or the next one, by the real protocol into the real sink. The batch has
ROWS rows in each partition.
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

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from oncebench.delivery.contract import EXACTLY_ONCE, RECORDS, SinkSettings, Writer, Written
from oncebench.delivery.decisions import REWRITE
from oncebench.delivery.journal import open_journal
from oncebench.delivery.protocols import choose, protocol_of
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.starts.places import Places
from oncebench.jobs.checkpoint import last_batch, open_batch
from oncebench.jobs.output import OutputChecks, Target
from oncebench.jobs.start import identity_of, start_sink
from oncebench.sinks.registry import SINKS

PARTITIONS, ROWS = 2, 3
SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])
WAITING = "waiting"


@dataclass(frozen=True)
class SmallJob:
    """One start.

    Attributes:
        die_at: the failpoint at which it kills itself.
        wait_at: the failpoint at which it prints WAITING and waits for a line.
    """

    sink: str
    sink_id: str
    output: str
    checkpoint: str
    variant: str = "two-phase"
    kafka: Mapping[str, Any] = field(default_factory=dict)
    timeout_ms: int = 60_000
    die_at: str = ""
    wait_at: str = ""

    def words(self) -> list[str]:
        return [sys.executable, "-m", "tests.small_job", json.dumps(asdict(self))]

    def run(self) -> None:
        kind = SINKS[self.sink]
        support = choose(kind, EXACTLY_ONCE, self.variant)
        target = Target(kind, support, self.sink_id, self.output, Path(self.checkpoint))
        settings = SinkSettings(
            {"output": self.output}, self.sink_id, PARTITIONS, target.checkpoint, self.kafka, self.timeout_ms
        )
        journal = open_journal(target.checkpoint, identity_of(target, PARTITIONS), settings.driver)
        checks = OutputChecks(target, journal, Gaps(journal.folder, None), Places(journal.folder))
        sink = kind.open(settings)
        sink.check_schema(SCHEMA)
        opened = open_batch(target.checkpoint)
        start_sink(sink, target, journal, checks)
        checks.record(sink)
        number = last_batch(target.checkpoint) + 1 if opened is None else opened
        for log in ("offsets", "commits"):
            (target.checkpoint / log).mkdir(exist_ok=True)
        (target.checkpoint / "offsets" / str(number)).touch()
        batch = SmallBatch(self, number, binary=kind.takes == RECORDS)
        protocol_of(kind, support)(cast("Any", batch), sink, journal, REWRITE)
        (target.checkpoint / "commits" / str(number)).touch()
        sink.close()


@dataclass
class SmallBatch:
    """What a protocol asks of a batch."""

    job: SmallJob
    id: int
    binary: bool
    dropped: Collection[int] = ()

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
        chosen = [partition for partition in range(PARTITIONS) if only is None or partition in only]
        return [Written(p, ROWS, 1, writer.write(Task(self, p), iter([self.rows(p)]))[0]) for p in chosen]

    def drain(self, expected: object = None, keep: bool = False) -> None:
        """Rows come from nowhere: there is nothing to consume."""

    def rows(self, partition: int) -> pa.RecordBatch:
        kind = pa.binary() if self.binary else pa.string()
        values = [value.encode() if self.binary else value for value in values_of(self.id, partition)]
        return pa.record_batch({name: pa.array(values, kind) for name in ("key", "value")})


@dataclass(frozen=True)
class Task:
    """A task of the batch."""

    of: SmallBatch
    partition: int

    @property
    def batch(self) -> int:
        return self.of.id

    def reach(self, point: str) -> None:
        if self.partition == PARTITIONS - 1:
            self.of.failpoint(point)

    def counted(self) -> tuple[int, int]:
        return ROWS, 1


def values_of(batch: int, partition: int) -> list[str]:
    """The values of the rows of one partition."""
    return [f"{batch}-{partition}-{row}" for row in range(ROWS)]


if __name__ == "__main__":
    SmallJob(**json.loads(sys.argv[1])).run()
