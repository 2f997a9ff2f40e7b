"""What a committed reader of a sink is: it shows what anybody who reads the sink properly would be shown.

Promise of every `Reader`: a row is given once per position (partition, offset), in ascending offset per
partition, and only when it is committed. A sink that is no log maps onto the same two numbers: a file and its
line, a table and its sequence column. What can go wrong is told in the `ReadReport`, not raised, wherever a
run can go on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from oncebench.errors import UserError

Headers = Sequence[tuple[str, bytes | None]]


class ReadError(UserError):
    """A sink that can't be read; the text says which, why, and what to do."""


@dataclass(frozen=True)
class Rows:
    """Columns of equal length: where each row stands, when it was appended (epoch ms), its key and value."""

    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    append_ms: list[int] = field(default_factory=list)
    key: list[bytes | None] = field(default_factory=list)
    value: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True)
class End:
    """Of one partition: its first offset, the end for a committed reader (`lso`), and the end of the log (`hw`)."""

    low: int
    lso: int
    hw: int


@dataclass(frozen=True)
class ReadReport:
    """How a read went: `complete` if every row from offset 0 to each `lso` was given; if not, `note` says why
    not.

    `waited_s`: seconds spent waiting for open transactions to end.
    """

    ends: Mapping[int, End]
    waited_s: float
    complete: bool
    note: str = ""

    def ends_json(self) -> dict[str, dict[str, int]]:
        """The ends as the run folder keeps them."""
        return {str(p): {"low": end.low, "lso": end.lso, "hw": end.hw} for p, end in sorted(self.ends.items())}


class Reader(Protocol):
    """A committed reader of one sink. Raises `ReadError` if the sink can't be read at all."""

    def poll(self, timeout_s: float) -> Rows:
        """The rows that became visible since the last call; waits up to `timeout_s` for the first of them."""
        ...

    def ends(self) -> dict[int, End]:
        """The present end of each partition."""
        ...

    def read_to_end(self, take: Callable[[Rows], Any], *, settle_s: float, idle_s: float) -> ReadReport:
        """Give every row of [0, end) to `take`, after waiting up to `settle_s` for open transactions to end.

        Gives up, and says so in the report, when nothing came for `idle_s`.
        """
        ...

    def close(self) -> None:
        """Give back connections and threads."""
        ...
