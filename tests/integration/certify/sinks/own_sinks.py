"""The sinks of this project as black boxes: functions for foreachBatch.

The functions have a journal of their own.

`deliver` gives a whole query its sink. A certificate calls a function per batch instead, so `_delivered` starts the
sink at the first batch of each driver, as `deliver` does, and keeps the journal in the folder of the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as parquet
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from oncebench.delivery.batch import deliverable
from oncebench.delivery.contract import EXACTLY_ONCE, Sink, SinkSettings
from oncebench.delivery.journal import open_journal
from oncebench.delivery.protocols import choose, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.jobs import DeltaSink, FilesSink, KafkaSink, PostgresSink
from oncebench.jobs.batches import Batches
from oncebench.jobs.output import Target
from oncebench.jobs.sinks import JobSink
from oncebench.jobs.start import identity_of
from oncebench.sinks.registry import SINKS

TASKS = 2
PARTITIONS = 2


def _run() -> str:
    return os.environ["ONCEBENCH_RUN"]


def _folder(name: str) -> Path:
    return Path(os.environ["ONCEBENCH_OUTPUT"]) / name


@cache
def _started(described: JobSink, schema: StructType) -> tuple[Sink, Callable[[DataFrame, int], None]]:
    kind = SINKS[described.kind]
    support = choose(kind, EXACTLY_ONCE, None)
    checkpoint = _folder("journal")
    checkpoint.mkdir(exist_ok=True)
    settings = SinkSettings(
        output={"output": described.output}, sink_id=described.sink_id, partitions=TASKS, checkpoint=checkpoint,
        variant=support.variant, **described.more,
    )  # fmt: skip
    target = Target(kind, support, described.sink_id, described.output, checkpoint)
    journal = open_journal(checkpoint, identity_of(target, TASKS), settings.driver)
    sink = kind.open(settings)
    sink.check_schema(schema)
    sink.start(support, journal.generation, journal.newest_prepared())
    return sink, Batches(protocol_of(kind, support), sink, journal, TASKS, Quarantine("", "", {}))


def _delivered(df: DataFrame, batch_id: int, described: JobSink) -> None:
    sink, deliver = _started(described, df.schema)
    deliver(deliverable(df, sink), batch_id)


def files(df: DataFrame, batch_id: int) -> None:
    """Writes Parquet files."""
    _folder("rows").mkdir(exist_ok=True)
    _delivered(df, batch_id, FilesSink(str(_folder("rows")), sink_id=_run()))


def read_files() -> list[dict[str, Any]]:
    """Returns the rows of all visible files."""
    found = sorted(_folder("rows").glob("*.parquet"))
    return [row for path in found for row in parquet.ParquetFile(path).read().to_pylist()]


def delta(df: DataFrame, batch_id: int) -> None:
    """Writes a Delta table."""
    _delivered(df, batch_id, DeltaSink(str(_folder("table")), sink_id=_run()))


def read_delta() -> list[dict[str, Any]]:
    """Returns the rows of the newest version."""
    return list(DeltaTable(_folder("table")).to_pyarrow_table().to_pylist())


def kafka(df: DataFrame, batch_id: int) -> None:
    """Writes records to a topic."""
    records = df.selectExpr("session_key AS key", "to_json(struct(*)) AS value")
    sink = KafkaSink(_topic(), bootstrap_servers=os.environ["ONCEBENCH_KAFKA"], sink_id=_run())
    _delivered(records, batch_id, sink)


def make_topic() -> None:
    """Makes the topic of the run."""
    admin = AdminClient({"bootstrap.servers": os.environ["ONCEBENCH_KAFKA"]})
    admin.create_topics([NewTopic(_topic(), PARTITIONS)])[_topic()].result()


def read_kafka() -> Iterator[dict[str, Any]]:
    """Yields the committed records up to the end of each partition."""
    settings = {
        "bootstrap.servers": os.environ["ONCEBENCH_KAFKA"], "group.id": "reader", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    }  # fmt: skip
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(_topic(), number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        ended = 0
        while ended < PARTITIONS:
            for record in consumer.consume(500, timeout=1):
                error = record.error()
                if error is None:
                    yield json.loads(record.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise KafkaException(error)


def _topic() -> str:
    return f"{_run()}.rows"


def postgres(df: DataFrame, batch_id: int) -> None:
    """Writes to a table."""
    _delivered(df, batch_id, PostgresSink(_run(), sink_id=_run()))


def make_table() -> None:
    """Makes the table of the run."""
    columns = "session_key TEXT, j INT, events INT, total BIGINT, checksum BIGINT, ended_at BIGINT"
    with closing(_connected()) as connection, connection:
        connection.execute(SQL("CREATE TABLE {} ({})").format(Identifier(_run()), SQL(columns)))


def read_postgres() -> list[dict[str, Any]]:
    """Returns the rows that are committed."""
    with closing(_connected()) as connection, connection:
        return connection.execute(SQL("SELECT * FROM {}").format(Identifier(_run()))).fetchall()


def _connected() -> psycopg.Connection[dict[str, Any]]:
    return psycopg.connect(os.environ["ONCEBENCH_POSTGRES"], row_factory=dict_row)
