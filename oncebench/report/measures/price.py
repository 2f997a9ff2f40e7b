"""The price of a run's events: processor seconds and bytes per million input events.

Promise: pure functions of the operating system's counters. The price includes everything that a guarantee needs:
Spark's JVM, driver, Python workers, Kafka, and the sink's server. It excludes the generator and the observer. If the
user runs a server, the suite cannot measure that server's share. Then there is no price: half a price would look cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oncebench.observe.resources import BROKER, SUITE, WATCHING, Use

MILLION = 1e6


def needed(services: Iterable[str]) -> frozenset[str]:
    """The components that a price requires: Kafka, and the servers of the sink."""
    return frozenset({BROKER, *services})


def price(uses: Mapping[str, Use], events: int | None, servers: frozenset[str]) -> dict[str, Any] | None:
    """`cpu_s`, `written_bytes` and `read_bytes` per million events, in total and by component.

    None if one of `servers` is missing or there were no events.
    """
    if not events or not servers <= uses.keys():
        return None
    priced = {name: use for name, use in uses.items() if name not in WATCHING}
    by_component = {
        name: {
            "cpu_s": _per_million(use.cpu_s, events),
            "written_bytes": _per_million(use.written_bytes, events),
            "read_bytes": _per_million(use.read_bytes, events),
        }
        for name, use in sorted(priced.items())
    }
    total = {
        figure: round(sum(each[figure] for each in by_component.values()), 2)
        for figure in ("cpu_s", "written_bytes", "read_bytes")
    }
    return {**total, "by_component": by_component}


def per_million(counts: Mapping[str, int] | None, events: int | None) -> dict[str, float | None]:
    """Counts per million events; None where nothing was counted or there were no events."""
    if not counts or not events:
        return {"bytes": None, "files": None}
    return {name: _per_million(counts[name], events) for name in ("bytes", "files")}


def pipeline_cpu_s(uses: Mapping[str, Use], events: int | None, servers: frozenset[str]) -> float | None:
    """Processor seconds of the pipeline alone per million events, without any server.

    None if the pipeline was not measured or there were no events.
    """
    used = _of_pipeline(uses, servers)
    return _per_million(used, events) if events and used else None


def watching_share(uses: Mapping[str, Use], servers: frozenset[str]) -> float | None:
    """The processor time of observer and suite as a share of the pipeline's.

    None if one of them is missing.
    """
    pipeline = _of_pipeline(uses, servers)
    if not pipeline or not {"observer", SUITE} <= uses.keys():
        return None
    return round((uses["observer"].cpu_s + uses[SUITE].cpu_s) / pipeline, 4)


def _of_pipeline(uses: Mapping[str, Use], servers: frozenset[str]) -> float:
    return sum(use.cpu_s for name, use in uses.items() if name not in WATCHING | servers)


def _per_million(used: float, events: int) -> float:
    return round(used / events * MILLION, 2)
