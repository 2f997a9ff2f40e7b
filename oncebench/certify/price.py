"""The price of a sink beside another function: healthy runs of both in turn.

Promise: a pure function of reports, apart from the list of runs. Both functions get the same load in each round, so a
machine that becomes slower meanwhile changes both. The interval is the one of `oncebench.report.comparisons.paired`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oncebench.certify.scenarios import HEALTHY, cell_of
from oncebench.report.comparisons.paired import FEWEST_ROUNDS, Difference, bootstrap
from oncebench.report.measures.metrics import why_no_speed
from oncebench.scenario.cell import Cell

# A load under which a batch takes a second or less on two cores.
RATE, SESSIONS = 1000.0, 200
_ROUNDS = FEWEST_ROUNDS
Figure = Callable[[Mapping[str, Any]], float | None]
FIGURES: Mapping[str, Figure] = {
    "time of the call per batch, in ms": lambda report: report["sink_ms"]["total"],
    "CPU seconds per million events": lambda report: report["cpu_s_per_million_events"],
}


@dataclass(frozen=True)
class Price:
    """One figure of both functions: medians over the rounds, and the ratio of the pairs."""

    figure: str
    own: float
    beside: float
    ratio: Difference

    @property
    def text(self) -> str:
        """The price as one line."""
        return (
            f"{self.figure}: {self.own:,.4g}, beside {self.beside:,.4g}; ratio {self.ratio.median:.2f} "
            f"{self.ratio.interval('.2f')}"
        )


def cells(black_box: str, beside: str, seed: int) -> list[tuple[Cell, Cell]]:
    """Returns the runs of each round: the function, and the one beside it.

    Args:
        black_box, beside: see `Cell.black_box`.
    """
    made = []
    for number in range(_ROUNDS):
        base = replace(
            cell_of(HEALTHY, True, "", seed + number), rate=RATE, sessions=SESSIONS, max_events_per_batch=None
        )
        made.append((replace(base, black_box=black_box), replace(base, black_box=beside)))
    return made


def prices(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Price]:
    """Returns the price by each figure; a round with a run that has no meaningful speed is left out."""
    sound = [pair for pair in pairs if not any(True for report in pair for _ in why_no_speed(report))]  # type: ignore[arg-type]
    found = []
    for name, figure in FIGURES.items():
        values = [(own, other) for own, other in ((figure(a), figure(b)) for a, b in sound) if own and other]
        if values:
            own, other = (bootstrap(column).median for column in zip(*values, strict=True))
            found.append(Price(name, own, other, bootstrap([a / b for a, b in values])))
    return found
