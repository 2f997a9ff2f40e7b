"""The sentences of the first screen: what exactly-once costs, and what it prevents.

Promise: every word about a figure is derived from the stored runs. A question without data has no sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.report.comparisons.paired import Difference
from oncebench.site.answer.headline import Answer, Kills

# An unclear ratio whose interval ends above this is named with that end. Medians of the thirds of one steady run differ
# by up to a fifth (`sustained.LATENCY_RISE`). So a larger difference is one that a user would notice, and an interval
# that reaches it is a lack of rounds rather than a sign of no cost.
OPEN_END = 1.25


def sentences(answers: Sequence[Answer]) -> list[str]:
    """The answer in one sentence, then what the weaker guarantees did under the same kind of kills."""
    cost, kept = _cost(answers), _kept(_kills(answers, EXACTLY_ONCE))
    first = "; ".join(filter(None, (cost, kept if cost else kept.replace(" it ", f" {EXACTLY_ONCE} "))))
    return [f"{part[0].upper()}{part[1:]}." for part in (first, ", and ".join(_weaker(answers))) if part]


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _cost(answers: Iterable[Answer]) -> str:
    ratios = {
        answer.sink: ratio
        for answer in answers
        if (cost := answer.costs.get("p99_ms")) and (ratio := cost.ratio) and ratio.has_interval
    }
    equal = [f"{sink}{_open_end(ratio)}" for sink, ratio in ratios.items() if not ratio.shows(1.0)]
    parts = [f"adds no clear p99 latency into {listed(equal)}"] if equal else []
    clear = [f"{_times(ratio)} the p99 latency into {sink}" for sink, ratio in ratios.items() if ratio.shows(1.0)]
    parts += [f"takes {listed(clear)}"] if clear else []
    return f"exactly-once {', but '.join(parts)}" if parts else ""


def _open_end(ratio: Difference) -> str:
    """Names the cost that the rounds of an unclear ratio do not exclude; empty for a small one."""
    return f" (could be up to {ratio.high:.2f} times)" if ratio.high > OPEN_END else ""


def _times(ratio: Difference) -> str:
    return f"{ratio.median:.2f} times ({ratio.low:.2f} to {ratio.high:.2f})"


def _kills(answers: Iterable[Answer], guarantee: str) -> list[Kills]:
    return [answer.kills[guarantee] for answer in answers if guarantee in answer.kills]


def _kept(found: Sequence[Kills]) -> str:
    """What the kills did under exactly-once."""
    if not found:
        return ""
    kills, lost, duplicated = _sums(found)
    if lost or duplicated:
        return f"in {kills:,} kills it lost {lost:,} rows and duplicated {duplicated:,}"
    return f"in {kills:,} kills it lost no row and duplicated none"


def _weaker(answers: Sequence[Answer]) -> Iterator[str]:
    for guarantee, index, did in ((AT_LEAST_ONCE, 2, "duplicated"), (AT_MOST_ONCE, 1, "lost")):
        if found := _kills(answers, guarantee):
            sums = _sums(found)
            yield f"{guarantee} {did} {sums[index]:,} rows in {sums[0]:,} kills"


def _sums(found: Sequence[Kills]) -> tuple[int, int, int]:
    """All kills, rows lost and rows duplicated."""
    return sum(each.kills for each in found), sum(each.lost for each in found), sum(each.duplicated for each in found)
