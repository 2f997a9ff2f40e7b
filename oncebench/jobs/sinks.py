"""Describes the sinks that `deliver` writes to: one small class per kind.

A description holds names and addresses, and opens nothing. `oncebench.jobs.deliver` opens the sink with it. The field
`sink_id` is the permanent name of one job in its sink: letters, digits, `.`, `_` and `-`. No two jobs may share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

from oncebench.delivery.errors import RefusedStart
from oncebench.kafka_access.access import KafkaAccess


class JobSink(Protocol):
    """A description of a sink. A class of your own with these attributes works too."""

    @property
    def kind(self) -> str:
        """The name of its kind in `oncebench.sinks.registry`."""

    @property
    def sink_id(self) -> str:
        """The permanent name of the job in the sink."""

    @property
    def output(self) -> str:
        """The topic, table or folder."""

    @property
    def more(self) -> Mapping[str, Any]:
        """The other fields of `SinkSettings` that the kind needs."""


@dataclass(frozen=True)
class KafkaSink:
    """A Kafka topic that takes the columns `key`, `value` and optionally `headers`.

    The columns are as for Spark's own Kafka sink.

    Promise: under exactly-once each row is one record of a committed transaction, so readers need
    `isolation.level=read_committed`. The topic must exist.

    Attributes:
        topic: the output topic.
        bootstrap_servers: `host:port` of brokers, separated by commas.
        kafka: instead of `bootstrap_servers`, for a cluster with TLS or a login.
        sink_id: see the module. It begins the names of transactional ids and consumer groups.
        transaction_timeout_ms: how long a transaction may stay open, from its first row to its commit, in ms. The
            broker's limit is `transaction.max.timeout.ms`.
    """

    topic: str
    _: KW_ONLY
    bootstrap_servers: str = ""
    sink_id: str
    transaction_timeout_ms: int = 60_000
    kafka: KafkaAccess | None = None

    @property
    def kind(self) -> str:
        return "kafka"

    @property
    def output(self) -> str:
        return self.topic

    @property
    def more(self) -> Mapping[str, Any]:
        return {
            "kafka": self._access().client,
            "transaction_timeout_ms": self.transaction_timeout_ms,
        }

    def _access(self) -> KafkaAccess:
        if (self.kafka is None) != bool(self.bootstrap_servers):
            raise RefusedStart(
                f"KafkaSink({self.topic!r}) needs the address of Kafka once. Give bootstrap_servers or, for a cluster "
                "with TLS or a login, kafka=KafkaAccess(...)."
            )
        return self.kafka or KafkaAccess(self.bootstrap_servers)


@dataclass(frozen=True)
class PostgresSink:
    """A PostgreSQL table, which must exist with the columns of the rows.

    The address is in the environment variable ONCEBENCH_POSTGRES, so that no password is in the code. A refused start
    prints the statement that creates a missing table. Arrays, structs and maps are refused by the column's name.
    Two-phase, the default of exactly-once, needs `max_prepared_transactions` in the server.

    Attributes:
        table: the output table.
        sink_id: see the module. It begins the names of prepared transactions.
        row_id: the columns that identify a row, for the variant `upsert` only.
    """

    table: str
    _: KW_ONLY
    sink_id: str
    row_id: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "postgres"

    @property
    def output(self) -> str:
        return self.table

    @property
    def more(self) -> Mapping[str, Any]:
        return {"row_id": self.row_id}


@dataclass(frozen=True)
class FilesSink:
    """A folder of Parquet or JSON-lines files; a visible file is complete.

    A start makes the folder if it is missing. All tasks must mount its file system under the same path.

    Attributes:
        folder: the path of the folder, not a URI.
        sink_id: see the module. It is part of every file's name.
        form: `parquet` or `jsonl`.
    """

    folder: str
    _: KW_ONLY
    sink_id: str
    form: str = "parquet"

    @property
    def kind(self) -> str:
        return f"files-{self.form}"

    @property
    def output(self) -> str:
        return self.folder

    @property
    def more(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table. The session needs Delta's jars and its two settings (docs/your_own_job.md).

    Attributes:
        folder: the path of the table's folder, not a URI.
        sink_id: see the module. It is part of the transaction's application id in Delta's log.
    """

    folder: str
    _: KW_ONLY
    sink_id: str

    @property
    def kind(self) -> str:
        return "delta"

    @property
    def output(self) -> str:
        return self.folder

    @property
    def more(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True)
class SqliteSink:
    """A table `rows` in an SQLite file on the machine that runs all tasks.

    Attributes:
        path: of the file. It must have the table `rows` with the query's columns; a start makes the sink's own tables.
        sink_id: see the module.
    """

    path: str
    _: KW_ONLY
    sink_id: str

    @property
    def kind(self) -> str:
        return "sqlite"

    @property
    def output(self) -> str:
        return self.path

    @property
    def more(self) -> Mapping[str, Any]:
        return {}
