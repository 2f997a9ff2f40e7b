"""Errors that end a query, each with what to do next.

Every one of them ends the query: a driver that went on after one could lose or duplicate rows.
"""

from __future__ import annotations


class PipelineError(Exception):
    """The pipeline stops; the message says what is wrong, where, and what to do."""


class RefusedStart(PipelineError):
    """A check failed (wrong checkpoint, sink or setting) before anything was read or written."""


class AnotherDriver(PipelineError):
    """Another driver works on this checkpoint; this one stopped and wrote nothing more."""


class NondeterministicReplay(PipelineError):
    """A replayed batch made other rows than its first run; going on would lose or duplicate some."""


class DeliveryFailed(PipelineError):
    """The sink did not acknowledge every row of a batch; a restart runs the batch again."""


class TaskTriedAgain(PipelineError):
    """Spark started a task again whose first attempt may have written; a restart replays the batch."""


class TooManyTasks(PipelineError):
    """A batch has more tasks than the pipeline keeps marks for."""


class CommitUncertain(PipelineError):
    """The sink could not be asked whether a decided batch is committed; a restart finishes it."""


class TransactionLost(PipelineError):
    """A decided transaction is gone before its commit; a restart writes those partitions again."""


class NoKafka(PipelineError):
    """Kafka did not answer while the pipeline started; a restart tries again."""


class HangingTransaction(PipelineError):
    """A decided transaction hangs in a partition and could not be ended; a restart tries again."""


class QueryDied(PipelineError):
    """Spark, or a writer of Spark's, failed; a restart runs again what was not committed."""


class StoppedGently(PipelineError):
    """The driver stopped between two batches, as asked. Not a failure."""


class ReadError(PipelineError):
    """A sink cannot be read; the message says which, why, and what to do."""
