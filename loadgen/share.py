"""The share of one generator in a load that several generators make together.

The plan of a load is the same for any number of generators: the same sessions, with the same events at the same times.
Session i belongs to generator `i % generators + 1`, with all its events. Sessions start in the order of their numbers,
so at every moment each generator has its share of the rate.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadgen.schedule import Block


@dataclass(frozen=True)
class Share:
    """The sessions of generator `number` (from 1) of `generators`."""

    number: int = 1
    generators: int = 1

    def sessions(self, planned: int) -> int:
        """The number of sessions in this share of a plan of `planned` sessions."""
        return len(range(self.number - 1, planned, self.generators))

    def has(self, session: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Which of these sessions belong to this share."""
        own: npt.NDArray[np.bool_] = session % np.uint32(self.generators) == self.number - 1
        return own

    def of(self, block: Block) -> Block:
        """The events of a block that belong to this share, in their order."""
        if self.generators == 1:
            return block
        own = self.has(block.session)
        return Block(block.session[own], block.seq[own], block.due_us[own])

    def __str__(self) -> str:
        return f"generator {self.number} of {self.generators}"
