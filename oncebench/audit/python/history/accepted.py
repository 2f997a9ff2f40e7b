"""The losses that an operator has accepted during a run (`gap` lines, docs/starts.md).

Promise: only what an accepted text names is counted by itself. A text names batches of the output, or offsets of the
input. A gap of one partition of the output covers its batches in every partition: the audit does not know which task
would have written a row that is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebench.audit.python.batches import batches
from oncebench.audit.python.model import Expected
from oncebench.audit.python.records import Bools
from oncebench.record.schema import BATCH, GAP

_OFFSETS = re.compile(r"input/(\d+):(\d+)\.\.(\d+)")
_MARKERS = re.compile(r"output/(?:\d+|all):(none|-?\d+)\.\.(-?\d+)")  # -1: before the first batch
_OTHER_OUTPUT = re.compile(r"output/.+")


@dataclass(frozen=True)
class Accepted:
    """What the accepted texts name.

    Attributes:
        batches: batches whose rows may be missing from the output.
        offsets: (partition, first, last) of input records that may be missing.
    """

    batches: frozenset[int] = frozenset()
    offsets: tuple[tuple[int, int, int], ...] = ()

    @staticmethod
    def of(progress: Sequence[Mapping[str, Any]]) -> Accepted:
        """Reads the lines of progress.jsonl in their order."""
        named: set[int] = set()
        offsets: list[tuple[int, int, int]] = []
        newest = -1
        for line in progress:
            if line["kind"] == BATCH:
                newest = max(newest, line["batch"])
            for part in line["text"].split(",") if line["kind"] == GAP else ():
                if lost := _OFFSETS.fullmatch(part):
                    offsets.append((int(lost[1]), int(lost[2]), int(lost[3])))
                elif lost := _MARKERS.fullmatch(part):
                    named |= set(range(0 if lost[1] == "none" else int(lost[1]) + 1, int(lost[2]) + 1))
                elif _OTHER_OUTPUT.fullmatch(part):
                    named |= set(range(newest + 1))
        return Accepted(frozenset(named), tuple(offsets))

    def sessions(self, expected: Expected, progress: Sequence[Mapping[str, Any]]) -> Bools:
        """[sessions] Whether a named batch read the session's last event."""
        found = np.zeros(len(expected.session_keys), dtype=bool)
        for batch in batches(progress):
            if batch.number in self.batches:
                found |= batch.sessions(expected)
        return found

    def records(self, partition: npt.NDArray[np.integer], offset: npt.NDArray[np.integer]) -> Bools:
        """Whether each position of the input is named."""
        found = np.zeros(len(offset), dtype=bool)
        for of, first, last in self.offsets:
            found |= (partition == of) & (offset >= first) & (offset <= last)
        return found
