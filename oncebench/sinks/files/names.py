"""The names of the files that a driver writes, and of its notes in the output folder."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from oncebench.delivery.errors import CommitRefused
from oncebench.sinks.files.folder import PENDING

# Of an attempt: the first ones are its driver's, the others are random.
_DIGITS, _OWN = 32, 16


@dataclass(frozen=True)
class Names:
    """Places and names of one driver's files of a sink_id. No name contains a row's value."""

    folder: Path
    sink_id: str
    generation: int
    suffix: str
    driver: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def pending(self) -> Path:
        """The hidden folder in which files are written, on the same file system."""
        return self.folder / PENDING

    def temporary(self, batch: int, partition: int) -> str:
        """Returns a new name for one attempt at a partition."""
        attempt = f"{self.driver[:_OWN]}{uuid.uuid4().hex}"[:_DIGITS]
        return f"{self._stem(batch, partition)}.g{self.generation}.{attempt}.{self.suffix}"

    def same(self, temporary: str) -> str:
        """Returns the attempt's own name: every attempt then becomes a visible file."""
        return temporary

    def final(self, temporary: str) -> str:
        """Returns the only name of a batch's partition: at most one attempt then becomes visible."""
        found = self._attempt(temporary)
        if found is None:
            raise CommitRefused(
                f"the journal names a file {temporary!r}, which sink_id {self.sink_id!r} never made: the journal is "
                "another's or damaged. Restore the checkpoint folder together with its journal."
            )
        return f"{self._stem(int(found[1]), int(found[2]))}.{self.suffix}"

    def is_older(self, name: str) -> bool:
        """Whether a name is a temporary file's of an older driver or of a copied checkpoint's."""
        found = self._attempt(name)
        return found is not None and int(found[3]) <= self.generation and not found[4].startswith(self.driver[:_OWN])

    @property
    def holder(self) -> Path:
        """The file with the newest driver of this sink_id."""
        return self.folder / f".oncebench-{self.sink_id}.driver.json"

    @property
    def claimed(self) -> Path:
        """The file with the newest batch that at-most-once has claimed."""
        return self.folder / f".oncebench-{self.sink_id}.claimed.json"

    def batch_and_partition(self, name: str) -> tuple[int, int] | None:
        """Returns (batch, partition) of a final name of this sink_id; None for other names."""
        found = re.fullmatch(rf"{self._numbers}\.{self.suffix}", name)
        return None if found is None else (int(found[1]), int(found[2]))

    def _stem(self, batch: int, partition: int) -> str:
        return f"part-{self.sink_id}-{batch:09d}-{partition:05d}"

    @property
    def _numbers(self) -> str:
        return rf"part-{re.escape(self.sink_id)}-(\d{{9,}})-(\d{{5,}})"

    def _attempt(self, name: str) -> re.Match[str] | None:
        return re.fullmatch(rf"{self._numbers}\.g(\d+)\.([0-9a-f]{{{_DIGITS}}})\.{self.suffix}", name)
