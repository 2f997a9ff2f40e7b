"""Reads the variants of the Flink job, such as `flink-rocksdb-200ms`.

The form is `flink-STATE-INTERVALms`. Flink keeps the state in a hash map on the heap, or in RocksDB. The interval is
the time between two checkpoints, and so between two commits of an exactly-once sink.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncebench.errors import ExitCode, UserError

STATES = ("hashmap", "rocksdb")
FORM = "flink-STATE-INTERVALms"
EXAMPLE = "flink-rocksdb-200ms"
_VARIANT = re.compile(rf"flink-({'|'.join(STATES)})-(\d{{1,7}})ms")
# Flink refuses shorter intervals (`CheckpointCoordinatorConfiguration.MINIMAL_CHECKPOINT_TIME`).
SHORTEST_MS = 10


@dataclass(frozen=True)
class FlinkVariant:
    """Where the state is kept, and the interval of the checkpoints in ms."""

    state: str
    interval_ms: int

    @staticmethod
    def parse(text: str) -> FlinkVariant:
        """Reads the name of a variant.

        Raises:
            UserError: the name has another form, or the interval is too short (exit code 2).
        """
        found = _VARIANT.fullmatch(text)
        if found is None or int(found[2]) < SHORTEST_MS:
            raise UserError(
                f"--variant {text!r} is not {FORM}. STATE is {' or '.join(STATES)}, INTERVAL is the milliseconds "
                f"between two checkpoints, at least {SHORTEST_MS}. An example is {EXAMPLE}",
                exit_code=ExitCode.USAGE,
            )
        return FlinkVariant(found[1], int(found[2]))
