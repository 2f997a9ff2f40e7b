"""The Pravega sink: rows as events of a stream, with exactly-once by two-phase commit.

An event is the value of a row. The key is not stored, and a row without a value is refused.

* two-phase: each task writes its rows in a Pravega transaction of its own, waits for all acknowledgements, and leaves
  the transaction open. The driver journals the transactions' ids and asks the controller to commit each. Any process
  may end a transaction, so a worker that is killed in between loses nothing.
* at-least-once and at-most-once: events are appended to the stream's segments, and each is acknowledged. At-most-once
  claims the batch first.

The task chooses the segment, not a hash of a routing key. A session's rows come from one task, so a reader gets them in
order. Another writer with routing keys would choose other segments.

Fencing: only a driver that has decided asks for a commit, and the journal accepts one decision per batch. A driver or
task that resumes late has nothing to commit. Readers never see the open transactions of dead writers. The controller
aborts such a transaction when its lease (`transaction_timeout_ms`) ends. It cannot be aborted earlier, because the
controller has no call that lists open transactions.

What can go wrong: the lease ends between prepare and commit, and the partition is lost (it is written again or dropped,
see `on_lost`); a decided batch is replayed a day later, when the controller has forgotten its transactions
(`CommitUncertain`); the stream is scaled while a task writes (the batch fails, and a restart writes it again).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from oncebench.delivery.contract import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    RECORDS,
    Sink,
    SinkKind,
    SinkSettings,
    Support,
)
from oncebench.delivery.errors import CommitRefused, CommitUncertain, DeliveryFailed, PipelineError, RefusedStart
from oncebench.sinks.records import encode_records, records_schema_error
from oncebench_pravega import controller as control
from oncebench_pravega.causes import cause_of, refuses_lease
from oncebench_pravega.controller import VARIABLE, Controller, ControllerError, Stream
from oncebench_pravega.writers import EventWriter, WarmUp

# The controller merges a transaction's segments about 100 ms after it accepted the commit; a newly started controller
# needs longer.
COMMIT_LIMIT_S = 60.0
COMMIT_PAUSE_S = 0.01


def address() -> str:
    """Returns the controller's address. Raises `RefusedStart` if the variable is not set."""
    found = os.environ.get(VARIABLE, "")
    if ":" not in found:
        raise RefusedStart(
            f"{VARIABLE} must name Pravega's controller as host:port; it is {found!r}. Set it in the job's environment."
        )
    return found


SUPPORTS = (
    Support(AT_MOST_ONCE, "claim", "claim, then events appended to the stream", default=True),
    Support(AT_LEAST_ONCE, "acknowledged", "events appended to the stream, each acknowledged", default=True),
    Support(EXACTLY_ONCE, "two-phase", "tasks leave transactions open, the driver decides and commits", default=True),
)


class PravegaSink(Sink):
    """Writes rows as events to one stream.

    Args:
        stream: an existing stream.
        partitions: tasks per batch.
        lease_ms: how long a prepared transaction may stay open.
    """

    def __init__(self, stream: Stream, partitions: int, lease_ms: int) -> None:
        self.partitions = partitions
        self._stream, self._lease_ms = stream, lease_ms
        self._where = address()
        self._controller = Controller(self._where)

    def check_schema(self, schema: StructType) -> None:
        """See `Sink.check_schema`: records as for Kafka; Pravega's events have no headers."""
        wrong = records_schema_error(schema)
        if wrong is not None or "headers" in schema.names:
            raise RefusedStart(
                f"rows for stream {self._stream}: {wrong or 'an event has no headers; drop the column.'} An event is "
                "the value alone: put into it whatever readers need of the key."
            )

    def encode(self, rows: DataFrame) -> DataFrame:
        """See `Sink.encode`: the value is the event, as bytes."""
        return encode_records(rows)

    def start(self, support: Support, _generation: int, _decided: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: looks the stream up and tests the lease. Fencing: see the module."""
        try:
            found = self._controller.segments(self._stream)
            if not found.names:
                raise RefusedStart(f"there is no stream {self._stream} at {self._where}. Make it, or name another.")
            if support.variant == "two-phase":
                self._controller.abort(self._stream, self._controller.begin(self._stream, self._lease_ms).id)
        except ControllerError as error:
            raise self._refused(error) from error

    def _refused(self, error: ControllerError) -> PipelineError:
        """Returns the error of a start whose request failed."""
        cause = cause_of(error)
        if refuses_lease(error):
            return RefusedStart(
                f"Pravega takes no transaction with a lease of {self._lease_ms} ms ({error}). Set "
                "transaction_timeout_ms to a value between the controller's controller.transaction.lease.count.min "
                "and .max, or change these limits."
            )
        if cause.permanent:
            return RefusedStart(
                f"Pravega's controller at {self._where} refuses the stream {self._stream} ({error}: {cause.reason}). "
                f"No row was read or written. {cause.remedy}, then start again."
            )
        return DeliveryFailed(
            f"Pravega's controller at {self._where} did not answer a request of the start ({error}). Check that it "
            f"runs, and the address in {VARIABLE}. No row was read or written; start again."
        )

    def warm_up_writer(self) -> WarmUp:
        return WarmUp(self._where, self._stream)

    def unacknowledged_writer(self) -> EventWriter:
        return EventWriter(self._where, self._stream)

    def acknowledged_writer(self) -> EventWriter:
        return EventWriter(self._where, self._stream)

    def prepare_writer(self) -> EventWriter:
        return EventWriter(self._where, self._stream, self._lease_ms)

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
        """See `Sink.commit`: returns when the rows are visible to readers.

        Raises:
            CommitUncertain: the controller gave no definite answer within COMMIT_LIMIT_S.
            CommitRefused: the controller has forgotten a transaction, or does not accept this job any more.
        """
        ids = {partition: str(entry["transaction"]) for partition, entry in prepared.items()}
        deadline = time.monotonic() + COMMIT_LIMIT_S
        for transaction in ids.values():  # all commits first, because the controller works on them in parallel
            self._insist(batch, deadline, partial(self._controller.commit, self._stream, transaction))
        return {partition for partition, name in ids.items() if not self._settled(batch, name, deadline)}

    def _settled(self, batch: int, transaction: str, deadline: float) -> bool:
        """Waits until a transaction has ended; returns False if it was aborted."""
        while True:
            state = self._insist(batch, deadline, partial(self._controller.state, self._stream, transaction))
            if state == control.COMMITTED:
                return True
            if state in (control.ABORTING, control.ABORTED):
                return False
            if state == control.OPEN:  # the controller did not accept the commit
                self._insist(batch, deadline, partial(self._controller.commit, self._stream, transaction))
            if state == control.UNKNOWN:
                raise CommitRefused(
                    f"batch {batch}: the controller at {self._where} does not know transaction {transaction} of "
                    f"{self._stream} (forgotten after a day), and nothing shows whether it was committed. If none of "
                    f"the batch's rows is in the stream, remove journal/decision-{batch:09d}.*.json from the "
                    "checkpoint and start again. If any is there, take a new checkpoint, sink_id and output."
                )
            if time.monotonic() > deadline:
                raise CommitUncertain(
                    f"batch {batch}: transaction {transaction} of {self._stream} was not merged within "
                    f"{COMMIT_LIMIT_S:g} s. The batch is decided: start again, and the replay finishes it."
                )
            time.sleep(COMMIT_PAUSE_S)

    def _insist(self, batch: int, deadline: float, ask: Callable[[], int]) -> int:
        """Repeats a request until the controller answers."""
        while True:
            try:
                return ask()
            except ControllerError as error:
                cause = cause_of(error)
                if cause.permanent:
                    raise CommitRefused(
                        f"batch {batch}: Pravega's controller at {self._where} refuses to end a transaction ({error}: "
                        f"{cause.reason}). {cause.remedy}, then start again. The batch is decided, and the replay "
                        "finishes it."
                    ) from error
                if time.monotonic() > deadline:
                    raise CommitUncertain(
                        f"batch {batch}: Pravega's controller at {self._where} could not be asked ({error}). The batch "
                        "is decided: start again when the controller works, and the replay finishes the batch."
                    ) from error
            time.sleep(COMMIT_PAUSE_S)

    def close(self) -> None:
        self._controller.close()


def _open(settings: SinkSettings) -> PravegaSink:
    return PravegaSink(Stream.named(settings.output["output"]), settings.partitions, settings.transaction_timeout_ms)


KINDS = (
    SinkKind(
        name="pravega",
        supports=SUPPORTS,
        lacks={
            "exactly-once/idempotent": "readers would get a marker that is committed with the rows as an event",
            "at-least-once/native": "Spark ships no Pravega sink to compare with",
        },
        open=_open,
        takes=RECORDS,
        timeout_limit="If the controller's limit, controller.transaction.lease.count.max, is not enough, raise that "
        "too. It takes a restart of the controller.",
        none_open="the controller has no call that lists open transactions, and aborts each when its lease ends",
    ),
)
