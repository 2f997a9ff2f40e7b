"""Errors that end a query. Each names the next step for the operator.

A driver that continued after such an error could lose or duplicate rows. `restart_helps` decides the exit code of the
job: 1, and a service manager may start it again; or 2, because the next start would meet the same error.
"""

from __future__ import annotations

from typing import ClassVar

# Exit codes of a job and of the pipeline.
RESTART_HELPS, NO_RESTART_HELPS = 1, 2
# How the last message of a pipeline begins, if it refused to start or an error stopped it. The suite finds the message
# in the log by this beginning. The jobs of other engines write the second one too (`peers/`).
REFUSED, STOPPED = "refused to start: ", "stopped: "


class PipelineError(Exception):
    """The pipeline stops; the message names the problem, its place and the next step."""

    restart_helps: ClassVar[bool] = True


class RefusedStart(PipelineError):
    """A check failed (wrong checkpoint, sink or setting).

    The failed start or batch has written no row.
    """

    restart_helps = False


class AnotherDriver(PipelineError):
    """Another driver works on this checkpoint; this one stopped and wrote nothing more.

    A restart would stop the other driver, and a service manager of each would then start them in turn.
    """

    restart_helps = False


class OlderDriver(PipelineError):
    """An older driver of this checkpoint took a late step after this driver's start.

    A restart continues from that step. This driver stopped, because it has not seen the step. A driver that is still
    the newest raises this error.
    """


class NondeterministicReplay(PipelineError):
    """A replayed batch made other rows than its first run.

    A driver that continued would lose or duplicate rows.
    """

    restart_helps = False


class DeliveryFailed(PipelineError):
    """The sink did not acknowledge every row of a batch; a restart runs the batch again."""


class PermanentFailure(DeliveryFailed):
    """The batch fails in the same way after a restart; the message names the record or setting."""

    restart_helps = False


class RecordTooLarge(PermanentFailure):
    """A row is longer than its topic allows; the message names the row and its size."""


class TransactionTooSlow(DeliveryFailed):
    """A transaction took longer than its time-out; a restart runs the batch again."""


class TaskTriedAgain(PipelineError):
    """Spark started a task again, and the first attempt may have written.

    A restart replays the batch.
    """


class WriterStartedAgain(PipelineError):
    """A writer of `deliver` was started again while a batch of its first query is open.

    A restart of the process, or a new call of `deliver`, replays the batch.
    """


class TooManyTasks(PipelineError):
    """A batch has more tasks than the pipeline keeps marks for."""

    restart_helps = False


class CommitUncertain(PipelineError):
    """The sink did not answer whether a decided batch is committed; a restart finishes it."""


class CommitRefused(CommitUncertain):
    """The sink refuses to commit a decided batch, and will refuse it again after a restart."""

    restart_helps = False


class TransactionLost(PipelineError):
    """A decided transaction is gone before its commit; a restart writes those partitions again."""


class NoKafka(PipelineError):
    """Kafka did not answer while the pipeline started; a restart tries again."""


class NoPostgres(PipelineError):
    """PostgreSQL did not answer while the pipeline started; a restart tries again."""


class NoStore(PipelineError):
    """The object store of the checkpoint did not answer; a restart tries again."""


class StoreRefuses(NoStore):
    """The object store refuses a request for good: the login, region or bucket is wrong.

    It refuses again after a restart.
    """

    restart_helps = False


class HangingTransaction(PipelineError):
    """A decided transaction hangs in a partition and could not be ended; a restart tries again."""


class QueryDied(PipelineError):
    """Spark or one of its writers failed; a restart repeats the batches that were not committed."""


class StoppedGently(PipelineError):
    """The driver stopped between two batches on request. This is not a failure."""


class ReadError(PipelineError):
    """A sink cannot be read; the message names the sink, the reason and the next step."""
