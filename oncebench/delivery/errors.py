"""What can stop the pipeline, each with what to do next.

Every one of these ends the query: a driver that goes on after one of them could lose or double rows.
"""

from __future__ import annotations


class PipelineError(Exception):
    """The pipeline stops; the message says what is wrong, where, and what to do."""


class RefusedStart(PipelineError):
    """A check at start failed (wrong checkpoint, sink, setting): nothing was read, nothing was written."""


class AnotherDriver(PipelineError):
    """Another driver works on this checkpoint: this one has stopped at once and written nothing more."""


class NondeterministicReplay(PipelineError):
    """A replayed batch made other rows than the first time; going on would lose or double some of them."""


class DeliveryFailed(PipelineError):
    """The sink did not acknowledge every row of a batch; Spark will run the batch again after a restart."""


class TaskTriedAgain(PipelineError):
    """Spark has tried a task again, whose first attempt may have written; a restart replays the whole batch."""


class TooManyTasks(PipelineError):
    """A batch has more tasks than the pipeline has partitions, for which alone marks are kept."""


class CommitUncertain(PipelineError):
    """The sink could not be asked whether a decided batch is committed; a restart finishes it."""


class TransactionLost(PipelineError):
    """A decided transaction was aborted by the broker's time-out; a restart writes those partitions again."""


class NoKafka(PipelineError):
    """Kafka did not answer while the pipeline started; a restart tries again."""


class HangingTransaction(PipelineError):
    """A transaction that its coordinator has decided hangs in a partition and could not be ended; a restart retries."""


class QueryDied(PipelineError):
    """Spark or a writer of Spark's failed; what was not committed is run again by a restart."""


class StoppedGently(PipelineError):
    """The driver was asked to stop and did so between two batches. Not a fault."""


class ReadError(PipelineError):
    """A sink that can't be read; the text says which, why, and what to do."""
