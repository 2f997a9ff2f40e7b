"""A transaction that a job has left open, and the sink's access to such transactions.

A sink kind declares this side in `SinkKind.transactions`, for each variant whose tasks leave transactions open. Looking
reads only. `take` comes before the first commit or abort: from then on no older driver of the sink_id can do anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from oncebench.delivery.contract import Mark, SinkSettings

# The state of a transaction in its server: begun and perhaps still written; durable, and its writer may be gone.
OPEN, PREPARED = "open", "prepared"
# The server has the outcome, and carries it out now; or it has carried it out, but not in every partition.
ENDING, HANGING = "ending", "hanging"
# Named by a decision, and aborted by the server before its commit.
LOST = "lost"


@dataclass(frozen=True)
class Left:
    """One transaction.

    Attributes:
        name: its name in the server (Kafka: transactional id; PostgreSQL: gid).
        state: OPEN, PREPARED, ENDING, HANGING or LOST.
        prepared: the data by which a decision names it (`Written.prepared`).
        batch: of its rows; None: the server does not show it.
        partitions: those of its rows, in order; empty: the server does not show them.
        generation: of its driver; None: its name does not contain it.
        began_at: Unix time in s; None: unknown.
        expires_at: Unix time in s at which the server aborts it by itself; None: never, or unknown.
        outcome: the server's own decision (True: commit), if it is ENDING or HANGING; None: there is none.
    """

    name: str
    state: str
    prepared: Mapping[str, Any] = field(default_factory=dict)
    batch: int | None = None
    partitions: tuple[int, ...] = ()
    generation: int | None = None
    began_at: float | None = None
    expires_at: float | None = None
    outcome: bool | None = None


class Transactions(Protocol):
    """The transactions of one sink_id."""

    def identity(self) -> Mapping[str, str]:
        """See `Sink.identity`."""

    def look(self) -> list[Left]:
        """Returns the transactions that have not ended. Reads only."""

    def name_of(self, prepared: Mapping[str, Any], /) -> str:
        """Returns the name of a transaction in a decision."""

    def marks(self) -> Mapping[int, Mark]:
        """Returns each partition's newest committed marker. Reads only."""

    def users(self) -> list[str]:
        """Returns what shows that a job uses this sink_id now, for a message. Reads only."""

    def take(self, generation: int | None, /) -> None:
        """Fences every older driver of the sink_id, so none begins or ends a transaction any more.

        Args:
            generation: from the journal; None: there is no journal, and the sink takes the next one.

        Raises:
            RefusedStart: the sink has seen a newer generation, or older drivers cannot be fenced.
        """

    def commit(self, chosen: Sequence[Left], /) -> Collection[str]:
        """Commits transactions, and returns the names of those that had been aborted before.

        A call may be repeated.
        """

    def abort(self, chosen: Sequence[Left], /) -> None:
        """Aborts transactions. A call may be repeated."""

    def close(self) -> None:
        """Releases connections."""


# Opens the transactions of a job; by variant in `SinkKind.transactions`.
OpensTransactions = Callable[["SinkSettings"], Transactions]
