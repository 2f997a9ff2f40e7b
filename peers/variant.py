"""Reads the variants of a peer's job, such as `flink-rocksdb-200ms`.

The form is `ENGINE-STATE-INTERVALms`. The state is on the heap or in RocksDB. The interval is the time between two
checkpoints or commits. An exactly-once sink therefore commits once per interval.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncebench.errors import ExitCode, UserError


@dataclass(frozen=True)
class Variant:
    """Where the state is kept, and the interval of the checkpoints or commits in ms."""

    state: str
    interval_ms: int


@dataclass(frozen=True)
class Form:
    """The names of an engine's variants.

    Attributes:
        engine: the first word of a name.
        states: where the engine can keep its state.
        step: the step that the interval repeats.
        shortest_ms: the shortest interval that the engine takes.
        example: the name of a variant.
    """

    engine: str
    states: tuple[str, ...]
    step: str
    shortest_ms: int
    example: str

    def __str__(self) -> str:
        return f"{self.engine}-STATE-INTERVALms"

    def parse(self, text: str) -> Variant:
        """Reads the name of a variant.

        Raises:
            UserError: the name has another form, or the interval is too short (exit code 2).
        """
        found = re.fullmatch(rf"{self.engine}-({'|'.join(self.states)})-(\d{{1,7}})ms", text)
        if found is None or int(found[2]) < self.shortest_ms:
            raise UserError(
                f"--variant {text!r} is not {self}. STATE is {' or '.join(self.states)}, INTERVAL is the milliseconds "
                f"between two {self.step}s, at least {self.shortest_ms}. An example is {self.example}",
                exit_code=ExitCode.USAGE,
            )
        return Variant(found[1], int(found[2]))
