"""The price of a sink: its time and CPU compared with those of another function.

Both functions run in turn, without faults, and every second round in the other order.

Promise: the figures depend on the reports alone. Both functions get the same load in each round, so a machine that
becomes slower affects both. A batch starts every TRIGGER_MS, so both get batches of the same size.
`oncebench.report.comparisons.paired` computes the 95 % intervals.
What can go wrong: a function whose batches take longer than TRIGGER_MS has no price in CPU (`metrics.figure`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from oncebench.certify.scenarios import HEALTHY, cell_of
from oncebench.report.comparisons.paired import FEWEST_ROUNDS, Difference, median_interval
from oncebench.report.measures.metrics import BY_NAME, Getter, field, figure, has_speed
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell

# Events per second, and sessions: a load of 20 s.
RATE, SESSIONS = 1000.0, 200
# With 2,000 events a batch takes about a second on two cores, so it fits into this interval.
TRIGGER_MS = 2000
_ROUNDS = FEWEST_ROUNDS
FIGURES: Mapping[str, Getter] = {
    "time of the call per batch, in ms": field("sink_ms", "total"),
    "CPU seconds per million events": lambda report: figure(report, BY_NAME["cpu_s"]),
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
            cell_of(HEALTHY, True, "", seed + number),
            rate=RATE,
            sessions=SESSIONS,
            trigger_ms=TRIGGER_MS,
            max_events_per_batch=None,
        )
        made.append((replace(base, black_box=black_box), replace(base, black_box=beside)))
    return made


def prices(pairs: Sequence[tuple[Report, Report]]) -> list[Price]:
    """Compares the two runs of each round, and returns a price per figure.

    A round counts only if both runs have a usable speed (`has_speed`).
    """
    sound = [pair for pair in pairs if all(map(has_speed, pair))]
    found = []
    for name, of in FIGURES.items():
        values = [(own, other) for own, other in ((of(a), of(b)) for a, b in sound) if own and other]
        if values:
            own, other = (median_interval(column).median for column in zip(*values, strict=True))
            found.append(Price(name, own, other, median_interval([a / b for a, b in values])))
    return found
