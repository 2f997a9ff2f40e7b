"""What the page's figures come from: machines, versions, how many runs of what, and the answer in short.

Promise: counted from the reports, never written by hand; where there is nothing to say, no sentence is there. What
exactly-once took is of the full comparison alone, and of ratios that have an interval: of no sweep and no single round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oncebench.delivery.contract import GUARANTEES
from oncebench.report.comparisons.paired import BASELINE, Setting
from oncebench.report.comparisons.sweep_selection import RATE, full_of
from oncebench.report.configuration import configuration_of
from oncebench.report.measures.metrics import BY_NAME
from oncebench.report.outcome import is_healthy, only_tried, outcome_of
from oncebench.report.schema import Report
from oncebench.site.costs import beside, settings_of, ways_in
from oncebench.site.promises import HEALTHY, Matrix, worst

GB = 1e9
NEVER = str(2**63 - 1)  # as Kafka says it


def as_json(reports: Sequence[Report], matrix: Matrix, on_purpose: Mapping[Any, str]) -> dict[str, Any]:
    """`on_purpose`: for each row the code that it is there to show."""
    healthy = [report for report in reports if is_healthy(report)]
    rounds = sorted({len(here) for here in _repeats(healthy).values()})
    tried = [report for report in reports if only_tried(report)]
    return {
        "answer": [*_promises(matrix, on_purpose), *_prices(reports)],
        "machines": [f"{machine} ({runs:,} runs)" for machine, runs in Counter(map(_machine, reports)).most_common()],
        "versions": _versions(reports),
        "durability": _durability(reports),
        "runs": len(reports),
        "healthy": len(healthy),
        "tried": len(tried),
        "repeats": _range(rounds),
        "faults": sum(fault["hit"] for report in reports for fault in report["faults"]),
        "verdicts": dict(Counter(outcome_of(report) for report in reports if not only_tried(report))),
        "seeds": len({report["seed"] for report in reports}),
    }


def _promises(matrix: Matrix, on_purpose: Mapping[Any, str]) -> Iterator[str]:
    """For each guarantee: in how many cells with a fault it was kept, and what these lost and doubled."""
    for guarantee in reversed(GUARANTEES):
        cells = [
            entries for place, entries in matrix.items()
            if place.way[1] == guarantee and place.family != HEALTHY and not on_purpose[place.way]
        ]  # fmt: skip
        if not cells:
            continue
        words = Counter(worst(entries).cell.outcome for entries in cells)
        lost, doubled = (
            sum(getattr(entry.cell, name) for entries in cells for entry in entries) for name in ("lost", "duplicated")
        )
        others = ", ".join(
            f"{words[word]:,} {word}" for word in ("broken", "unknown", "vacuous", "limit") if words[word]
        )
        yield (
            f"{guarantee.capitalize()} was kept in {words['kept']:,} of {len(cells):,} cells with a fault"
            f"{f' ({others})' if others else ''}; they lost {lost:,} rows and doubled {doubled:,}."
        )


def _prices(reports: Sequence[Report]) -> Iterator[str]:
    """What exactly-once took beside at-least-once of the same sink, as a range over the sinks and not as a mean: the
    latency of the full comparison, and the price where it is one: of a load that was there at once, or with room."""
    found = dict(settings_of(reports))
    full = list(full_of(found).values())
    for name, settings, where, what in (
        ("p99_ms", full, f"At {RATE:,g} events/s", "p99 latency"),
        ("cpu_s", found, "Flat out, or with room between batches,", "processor time by event"),
    ):
        ratios = [
            (setting.sink, times)
            for setting in settings
            for way in ways_in(found[setting])
            if way[0] == "exactly-once" and (times := beside(found[setting], BY_NAME[name], way)[0]) is not None
            and times.has_interval
        ]  # fmt: skip
        if ratios:
            low, high = min(each.median for _, each in ratios), max(each.median for _, each in ratios)
            unclear = sum(not each.shows(1.0) for _, each in ratios)
            yield (
                f"{where} exactly-once took {low:.2f} to {high:.2f} times the {what} of {' '.join(BASELINE)} of the "
                f"same sink (no difference shown in {unclear} of {len(ratios)} comparisons, of "
                f"{', '.join(sorted({sink for sink, _ in ratios}))})."
            )


def _repeats(healthy: Sequence[Report]) -> Mapping[Any, list[Report]]:
    """Healthy runs by setting and way, without tries of a rate."""
    found: dict[Any, list[Report]] = {}
    for report in healthy:
        if not report.get("probe"):
            found.setdefault((Setting.of(report), configuration_of(report)), []).append(report)
    return found


def _machine(report: Report) -> str:
    told = report.get("environment", {})
    memory = told.get("memory_bytes")
    parts = [
        told.get("cpu"),
        f"{told['cores']} cores" if told.get("cores") else None,
        f"{memory / GB:,.0f} GB" if memory else None,
        told.get("system"),
    ]
    return ", ".join(filter(None, parts)) or "not recorded"


def _versions(reports: Sequence[Report]) -> dict[str, str]:
    """By component, every version that a run had, in their order; older reports name fewer."""
    found: dict[str, list[str]] = {}
    for report in reports:
        told = report.get("environment", {})
        plain = {name: told.get(name) for name in ("oncebench", "python", "java")}
        for name, version in {**plain, **told.get("versions", {})}.items():
            if version and version not in found.setdefault(name, []):
                found[name].append(version)
    return {name: ", ".join(versions) for name, versions in found.items() if versions}


def _durability(reports: Sequence[Report]) -> list[str]:
    """What the servers said of when a commit is safe, each answer once; older reports tell of none."""
    found = Counter(
        f"{server}: " + ", ".join(f"{name} {'never' if value == NEVER else value}" for name, value in told.items())
        for report in reports
        for server, told in (report.get("environment", {}).get("durability") or {}).items()
    )
    return [f"{told} ({runs:,} run{'' if runs == 1 else 's'})" for told, runs in sorted(found.items())]


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return "-"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
