"""The first screen's sentences: what was tested, what exactly-once costs and prevents.

Promise: every word about a figure is derived from the stored runs. A question without data has no sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.report.comparisons.paired import Difference
from oncebench.report.schema import Report
from oncebench.report.tables.engines import by_place, cpu_of_exactly_once, engine_of, is_of_spark
from oncebench.site.answer.headline import Answer, Kills

# An unclear ratio whose interval ends above this is named with that end. Medians of the thirds of one steady run differ
# by up to a fifth (`sustained.LATENCY_RISE`). So a larger difference is one that a user would notice, and an interval
# that reaches it is a lack of rounds rather than a sign of no cost.
OPEN_END = 1.25


def sentences(answers: Sequence[Answer]) -> list[str]:
    """Returns the answer in one sentence, then what weaker guarantees did under the same kills.

    The price flat out is the answer where it has intervals, and the latency follows; else the latency is the answer.
    """
    kept, price = _kept(_kills(answers, EXACTLY_ONCE)), _cost(answers, "s_per_million", "time per event")
    cost = "" if price else _cost(answers, "p99_ms", "p99 latency")
    answer = "; ".join(filter(None, (cost, kept if cost else kept.replace(" it ", f" {EXACTLY_ONCE} "))))
    before = (f"flat out, {price}", _latency(answers)) if price else ()
    return [f"{part[0].upper()}{part[1:]}." for part in (*before, answer, ", and ".join(_weaker(answers))) if part]


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def subject(reports: Sequence[Report], others: Sequence[Report]) -> str:
    """What was tested: the engine, the size of its machines, and the other engines."""
    cores = sorted({count for report in reports if (count := report.get("environment", {}).get("cores"))})
    size = f" on {listed([str(count) for count in cores])} core{'s' if cores != [1] else ''}" if cores else ""
    peers = list(dict.fromkeys(engine_of(report) for report in others if not is_of_spark(report)))
    beside = f", next to {listed(peers)}" if peers else ""
    return f"Spark Structured Streaming from Kafka into each sink{size}{beside}."


def of_engines(others: Sequence[Report]) -> str:
    """Returns the processor time of exactly-once in each engine, from lowest to highest row.

    Empty with fewer than two engines, which is often so. Runs of different machines or versions are not compared: the
    newest series counts.
    """
    (reports,) = list(by_place(others).values())[:1] or [[]]
    found = cpu_of_exactly_once(reports)
    if len(found) < 2:
        return ""
    spans = [
        f"{low:.1f}{f' to {high:.1f}' if f'{low:.1f}' != f'{high:.1f}' else ''} µs in {engine}"
        for engine, (low, high, _) in found.items()
    ]
    alone = ", one run each" if min(runs for _, _, runs in found.values()) == 1 else ""
    return f"Exactly-once into Kafka took {listed(spans)}: CPU per event, flat out{alone}."


def _cost(answers: Sequence[Answer], metric: str, name: str) -> str:
    ratios = {answer.sink: ratio for answer in answers if (ratio := _ratio(answer, metric))}
    there = {answer.sink: answer.elsewhere if metric == "p99_ms" else {} for answer in answers}
    equal = [
        f"{sink}{_notes(_open_end(ratio), *_contradictions(there[sink]))}"
        for sink, ratio in ratios.items() if not ratio.shows(1.0)
    ]  # fmt: skip
    parts = [f"shows no difference from {AT_LEAST_ONCE} in {name} into {listed(equal)}"] if equal else []
    clear = [
        (_times(ratio), f"into {sink}{_notes(*_contradictions(there[sink]))}")
        for sink, ratio in ratios.items() if ratio.shows(1.0)
    ]  # fmt: skip
    first, rest = clear[:1], clear[1:]
    of_base = f"the {name}" if equal else f"the {name} of {AT_LEAST_ONCE}"
    named = [f"{times} {of_base} {where}" for times, where in first] + [f"{times} {where}" for times, where in rest]
    parts += [f"takes {listed(named)}"] if clear else []
    return f"exactly-once {', but '.join(parts)}" if parts else ""


def _ratio(answer: Answer, metric: str) -> Difference | None:
    """The ratio of a metric; None without an interval."""
    cost = answer.costs.get(metric)
    return cost.ratio if cost and cost.ratio and cost.ratio.has_interval else None


def _latency(answers: Sequence[Answer]) -> str:
    """The clear differences in p99 latency, and what the others do not exclude."""
    ratios = {each.sink: _ratio(each, "p99_ms") for each in answers}
    found = {sink: ratio for sink, ratio in ratios.items() if ratio is not None}
    clear = [f"{_times(ratio)} into {sink}" for sink, ratio in found.items() if ratio.shows(1.0)]
    others = {sink: ratio for sink, ratio in found.items() if not ratio.shows(1.0)}
    notes = [f"{sink} {end}" for sink, ratio in others.items() if (end := _open_end(ratio))]
    parts = [listed(clear), f"shows no difference into {'the others' if clear else 'any sink'}" if others else ""]
    return (
        f"the p99 latency {'is ' if clear else ''}{', and '.join(filter(None, parts))}{_notes(*notes)}" if found else ""
    )


def _open_end(ratio: Difference) -> str:
    """Names the cost that the rounds of an unclear ratio do not exclude; empty for a small one."""
    return f"could be up to {ratio.high:.2f} times" if ratio.high > OPEN_END else ""


def _contradictions(elsewhere: Mapping[str, Difference]) -> Iterator[str]:
    """The ratios of other machines that contradict the ratio of a sink."""
    for letter, ratio in elsewhere.items():
        times = f"{ratio.median:.2f} times, {ratio.low:.2f} to {ratio.high:.2f}"
        yield f"{times if ratio.shows(1.0) else f'no clear difference, {times},'} on machine {letter}"


def _notes(*notes: str) -> str:
    present = "; ".join(filter(None, notes))
    return f" ({present})" if present else ""


def _times(ratio: Difference) -> str:
    return f"{ratio.median:.2f} times ({ratio.low:.2f} to {ratio.high:.2f})"


def _kills(answers: Iterable[Answer], guarantee: str) -> list[Kills]:
    return [answer.kills[guarantee] for answer in answers if guarantee in answer.kills]


def _kept(found: Sequence[Kills]) -> str:
    """What the kills did under exactly-once."""
    if not found:
        return ""
    kills, lost, duplicated = _sums(found)
    where = f"in {kills:,} kills (kill -9 of the whole pipeline at its {found[0].all_points} failpoints)"
    if lost or duplicated:
        return f"{where} it lost {lost:,} rows and duplicated {duplicated:,}"
    return f"{where} it lost no row and duplicated none"


def _weaker(answers: Sequence[Answer]) -> Iterator[str]:
    for guarantee, index, did in ((AT_LEAST_ONCE, 2, "duplicated"), (AT_MOST_ONCE, 1, "lost")):
        if found := _kills(answers, guarantee):
            sums = _sums(found)
            yield f"{guarantee} {did} {sums[index]:,} rows in {sums[0]:,} kills"


def _sums(found: Sequence[Kills]) -> tuple[int, int, int]:
    """All kills, rows lost and rows duplicated."""
    return sum(each.kills for each in found), sum(each.lost for each in found), sum(each.duplicated for each in found)
