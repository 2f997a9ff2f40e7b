"""Errors that end a query. Each names the next step for the operator.

A driver that continued after such an error could lose or duplicate rows.
"""

from __future__ import annotations


class PipelineError(Exception):
    """The pipeline stops; the message names the problem, its place and the next step."""


class RefusedStart(PipelineError):
    """A check failed (wrong checkpoint, sink or setting) before anything was read or written."""


class AnotherDriver(PipelineError):
    """Another driver works on this checkpoint; this one stopped and wrote nothing more."""


class NondeterministicReplay(PipelineError):
    """A replayed batch made other rows than its first run.

    A driver that continued would lose or duplicate rows.
    """


class DeliveryFailed(PipelineError):
    """The sink did not acknowledge every row of a batch; a restart runs the batch again."""


class TaskTriedAgain(PipelineError):
    """Spark started a task again, and the first attempt may have written.

    A restart replays the batch.
    """


class TooManyTasks(PipelineError):
    """A batch has more tasks than the pipeline keeps marks for."""


class CommitUncertain(PipelineError):
    """The sink did not answer whether a decided batch is committed; a restart finishes it."""


class TransactionLost(PipelineError):
    """A decided transaction is gone before its commit; a restart writes those partitions again."""


class NoKafka(PipelineError):
    """Kafka did not answer while the pipeline started; a restart tries again."""


class HangingTransaction(PipelineError):
    """A decided transaction hangs in a partition and could not be ended; a restart tries again."""


class QueryDied(PipelineError):
    """Spark or one of its writers failed; a restart repeats the batches that were not committed."""


class StoppedGently(PipelineError):
    """The driver stopped between two batches on request. This is not a failure."""


class ReadError(PipelineError):
    """A sink cannot be read; the message names the sink, the reason and the next step."""
