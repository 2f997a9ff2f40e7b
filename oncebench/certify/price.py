"""The price of a sink: its time and CPU compared with those of another function.

Both functions run in turn, without faults.

Promise: the figures depend on the reports alone. Both functions get the same load in each round, so a machine that
becomes slower affects both. `oncebench.report.comparisons.paired` computes the 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oncebench.certify.scenarios import HEALTHY, cell_of
from oncebench.report.comparisons.paired import FEWEST_ROUNDS, Difference, median_interval
from oncebench.report.measures.metrics import why_no_speed
from oncebench.scenario.cell import Cell

# Events per second, and sessions. Under this load a batch takes a second or less on two cores.
RATE, SESSIONS = 1000.0, 200
_ROUNDS = FEWEST_ROUNDS
Figure = Callable[[Mapping[str, Any]], float | None]
FIGURES: Mapping[str, Figure] = {
    "time of the call per batch, in ms": lambda report: report["sink_ms"]["total"],
    "CPU seconds per million events": lambda report: report["cpu_s_per_million_events"],
}


@dataclass(frozen=True)
class Price:
    """One figure of both functions.

    Attributes:
        figure: what was measured, with its unit.
        own: median of the user's sink over the rounds.
        beside: median of the other function over the rounds.
        ratio: `own` divided by `beside`: the median of the rounds' ratios, with its interval.
    """

    figure: str
    own: float
    beside: float
    ratio: Difference

    @property
    def text(self) -> str:
        """The price as one line."""
        return (
            f"{self.figure}: {self.own:,.4g} against {self.beside:,.4g}, ratio {self.ratio.median:.2f} "
            f"{self.ratio.interval('.2f')}"
        )


def cells(black_box: str, beside: str, seed: int) -> list[tuple[Cell, Cell]]:
    """Returns the pair of runs of each round: the user's sink, and the other function.

    Args:
        black_box: the user's sink as `Cell.black_box`.
        beside: the other function as `Cell.black_box`.
    """
    made = []
    for number in range(_ROUNDS):
        base = replace(
            cell_of(HEALTHY, True, "", seed + number), rate=RATE, sessions=SESSIONS, max_events_per_batch=None
        )
        made.append((replace(base, black_box=black_box), replace(base, black_box=beside)))
    return made


def prices(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Price]:
    """Returns a price per figure. A round counts only if both runs have a usable speed (`why_no_speed`)."""
    sound = [pair for pair in pairs if not any(True for report in pair for _ in why_no_speed(report))]  # type: ignore[arg-type]
    found = []
    for name, figure in FIGURES.items():
        values = [(own, other) for own, other in ((figure(a), figure(b)) for a, b in sound) if own and other]
        if values:
            own, other = (median_interval(column).median for column in zip(*values, strict=True))
            found.append(Price(name, own, other, median_interval([a / b for a, b in values])))
    return found
