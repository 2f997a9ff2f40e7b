"""Exact distributions of values that were measured row by row.

Promise: every percentile is a measured value (nearest rank). It is taken over all values, not over a sketch of them.
Negative values, from clocks that disagree, are kept and counted, never clipped. A row that was never seen is later than
every other row. So a percentile that would be the value of such a row is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

_RANKS = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p999": 0.999}
# The points of a curve, in per cent. They are denser towards the tail, because readers look at the tail.
CURVE = (0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 100.0)


@dataclass(frozen=True)
class Distribution:
    """Figures of `n` values in ms, and of `unseen` rows without a value.

    A figure is None if there is no such value. `negative` counts values < 0.
    """

    n: int = 0
    unseen: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    p999: float | None = None
    max: float | None = None
    min: float | None = None
    negative: int = 0

    @staticmethod
    def of(values_ms: npt.NDArray[np.float64], unseen: int = 0) -> Distribution:
        """Returns the distribution of the values; their order does not matter."""
        if not len(values_ms):
            return Distribution(unseen=unseen)
        *points, most = _values_at([*_RANKS.values(), 1.0], values_ms, unseen)
        return Distribution(
            n=len(values_ms),
            unseen=unseen,
            **dict(zip(_RANKS, points, strict=True)),
            max=most,
            min=float(values_ms.min()),
            negative=int((values_ms < 0).sum()),
        )

    @staticmethod
    def curve(values_ms: npt.NDArray[np.float64], unseen: int = 0) -> list[float | None] | None:
        """Returns the values at CURVE; None without values."""
        if not len(values_ms):
            return None
        found = _values_at([percent / 100 for percent in CURVE], values_ms, unseen)
        return [None if value is None else round(value, 2) for value in found]

    def as_json(self) -> dict[str, float | int | None]:
        """Returns the figures by name."""
        return asdict(self)


def _values_at(ranks: Sequence[float], values_ms: npt.NDArray[np.float64], unseen: int) -> list[float | None]:
    """Returns the values at these ranks, from 0 to 1; None where an unseen row has the rank."""
    all_ms = np.concatenate((values_ms, np.full(unseen, np.inf)))
    found: list[float] = np.quantile(all_ms, ranks, method="inverted_cdf").tolist()
    return [None if value == np.inf else value for value in found]
