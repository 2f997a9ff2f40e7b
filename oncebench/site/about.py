"""Summary of the page's runs: how often each guarantee was kept, and the figures' origin.

Promise: every sentence is counted from the reports. A guarantee without data has no sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from oncebench.audit.verdict import FORBIDDEN, RULES
from oncebench.delivery.contract import GUARANTEES
from oncebench.report.comparisons.paired import Setting
from oncebench.report.configuration import configuration_of
from oncebench.report.outcome import CHARGED, LIMIT, is_healthy, only_tried, outcome_of
from oncebench.report.schema import Report
from oncebench.site.faults.matrix import HEALTHY, Matrix, worst

GB = 1e9
# The schema of reports since which every run had the current protocols. Some runs before it had them, too, but their
# reports do not show it.
PRESENT_PROTOCOLS_SINCE = 3
NEVER = str(2**63 - 1)  # Kafka's value for a flush interval that never elapses


def as_json(reports: Sequence[Report], matrix: Matrix, on_purpose: Mapping[Any, str]) -> dict[str, Any]:
    """The summary. `on_purpose`: each configuration's intended anomaly; empty for real sinks."""
    healthy = [report for report in reports if is_healthy(report)]
    rounds = sorted({len(here) for here in _repeats(healthy).values()})
    probes = [report for report in reports if only_tried(report)]
    return {
        "promises": list(_promises(reports, matrix, on_purpose)),
        "protocols": _protocols(reports, matrix, on_purpose),
        "machines": [f"{machine} ({runs:,} runs)" for machine, runs in Counter(map(_machine, reports)).most_common()],
        "versions": _versions(reports),
        "durability": _durability(reports),
        "runs": len(reports),
        "healthy": len(healthy),
        "rate_probes": len(probes),
        "repeats": _range(rounds),
        "faults": sum(fault["hit"] for report in reports for fault in report["faults"]),
        "verdicts": dict(Counter(outcome_of(report) for report in reports if not only_tried(report))),
        "seeds": len({report["seed"] for report in reports}),
    }


def _promises(reports: Sequence[Report], matrix: Matrix, on_purpose: Mapping[Any, str]) -> Iterator[str]:
    """Yields a text per guarantee: in how many cells with a fault it was kept.

    The text also has the lost and duplicated rows of these cells' runs.
    """
    for guarantee, cells in _by_guarantee(matrix, on_purpose).items():
        outcomes = Counter(worst(entries).cell.outcome for entries in cells.values())
        others = ", ".join(
            f"{outcomes[outcome]:,} {outcome}"
            for outcome in ("broken", "unknown", "vacuous", "limit")
            if outcomes[outcome]
        )
        runs = [reports[number] for number in sorted({entry.run for entries in cells.values() for entry in entries})]
        counts = [f"Rows {name}: {_rows(runs, name, _forbidden(code, guarantee))}." for code, name in CHARGED.items()]
        kept = f"{guarantee.capitalize()} was kept in {outcomes['kept']:,} of {len(cells):,} cells with a fault"
        yield " ".join([f"{kept}{f' ({others})' if others else ''}.", *counts])


def _protocols(reports: Sequence[Report], matrix: Matrix, on_purpose: Mapping[Any, str]) -> str | None:
    """How many cells of each guarantee ran with the current protocols; None if all did."""
    parts, some_older = [], False
    for guarantee, cells in _by_guarantee(matrix, on_purpose).items():
        present = with_present_protocols(reports, cells)
        some_older |= present < len(cells)
        parts.append(f"{present:,} of {len(cells):,} cells of {guarantee}")
    older = "ran with the current protocols, the others perhaps with earlier ones"
    return f"At least {', '.join(parts)} {older}." if some_older else None


def _by_guarantee(matrix: Matrix, on_purpose: Mapping[Any, str]) -> dict[str, Matrix]:
    """Returns the cells with a fault by guarantee, without those that are broken on purpose.

    A guarantee without such cells is left out.
    """
    found = {
        guarantee: {
            place: entries
            for place, entries in matrix.items()
            if place.configuration[1] == guarantee and place.family != HEALTHY and not on_purpose[place.configuration]
        }
        for guarantee in reversed(GUARANTEES)
    }
    return {guarantee: cells for guarantee, cells in found.items() if cells}


def with_present_protocols(reports: Sequence[Report], cells: Matrix) -> int:
    """The number of cells with a run whose report shows that it had the current protocols."""
    return sum(
        any(reports[entry.run].get("schema", 1) >= PRESENT_PROTOCOLS_SINCE for entry in entries)
        for entries in cells.values()
    )


def _rows(runs: Iterable[Report], name: Literal["lost", "duplicated"], forbidden: bool) -> str:
    """Returns the number of rows that runs lost or duplicated.

    Adds how many of them were in batches without a fault, and which faults these runs had.
    """
    total, outside, unexplained = 0, 0, 0
    actions: set[str] = set()
    for report in runs:
        total += report["rows"][name] or 0
        unexplained += 0 if outcome_of(report) == LIMIT else report["rows"][name] or 0
        if uncharged := report.get("uncharged", {}).get(name):
            outside += uncharged
            actions |= {fault["fault"].split("@")[0].partition(":")[2] for fault in report["faults"]}
    notes = [] if forbidden else ["allowed"]
    if forbidden and total and not unexplained:
        notes.append("all in runs with known limits")
    if outside:
        notes.append(f"{outside:,} of these in batches without a fault, in runs with {', '.join(sorted(actions))}")
    return f"{total:,} ({'; '.join(notes)})" if notes else f"{total:,}"


def _forbidden(code: str, guarantee: str) -> bool:
    return bool(RULES[code][guarantee] == FORBIDDEN)


def _repeats(healthy: Sequence[Report]) -> Mapping[Any, list[Report]]:
    """Healthy runs by setting and configuration, without the probes of a rate."""
    found: dict[Any, list[Report]] = {}
    for report in healthy:
        if not report.get("probe"):
            found.setdefault((Setting.of(report), configuration_of(report)), []).append(report)
    return found


def _machine(report: Report) -> str:
    environment = report.get("environment", {})
    memory = environment.get("memory_bytes")
    parts = [
        environment.get("cpu"),
        f"{environment['cores']} cores" if environment.get("cores") else None,
        f"{memory / GB:,.0f} GB" if memory else None,
        environment.get("system"),
    ]
    return ", ".join(filter(None, parts)) or "not recorded"


def _versions(reports: Sequence[Report]) -> dict[str, str]:
    """Every version of each component. Older reports name fewer components."""
    found: dict[str, list[str]] = {}
    for report in reports:
        environment = report.get("environment", {})
        plain = {name: environment.get(name) for name in ("oncebench", "python", "java")}
        for name, version in {**plain, **environment.get("versions", {})}.items():
            if version and version not in found.setdefault(name, []):
                found[name].append(version)
    return {name: ", ".join(versions) for name, versions in found.items() if versions}


def _durability(reports: Sequence[Report]) -> list[str]:
    """The server settings that make a commit durable. Older reports have none."""
    found = Counter(
        f"{server}: " + ", ".join(f"{name} {'never' if value == NEVER else value}" for name, value in options.items())
        for report in reports
        for server, options in (report.get("environment", {}).get("durability") or {}).items()
    )
    return [f"{options} ({runs:,} run{'' if runs == 1 else 's'})" for options, runs in sorted(found.items())]


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return "-"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
