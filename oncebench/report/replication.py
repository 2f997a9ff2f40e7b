"""The replication of a run's topics, as the servers reported it before the load.

Promise: a pure function of a report. It counts for the suite's own brokers and for the user's Kafka alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oncebench.report.schema import Report


class Replication(NamedTuple):
    """Replicas of each partition, and how many must have a row before it is acknowledged."""

    replicas: int
    in_sync: int


def replication_of(report: Report) -> Replication | None:
    """The replication of a run; None for one replica, and for older reports without it."""
    kafka = ((report.get("environment") or {}).get("durability") or {}).get("kafka") or {}
    found = Replication(int(kafka.get("replicas", 1)), int(kafka.get("min.insync.replicas", 1)))
    return found if found.replicas > 1 else None


def replicas_text(report: Report) -> str:
    """`3 replicas`; empty for one replica."""
    found = replication_of(report)
    return "" if found is None else f"{found.replicas} replicas"


def replication_lines(reports: Iterable[Report]) -> Iterator[str]:
    """A line per replication, for below a table. No line if every run had one replica."""
    every = [replication_of(report) for report in reports]
    for found in sorted({each for each in every if each is not None}):
        yield f"{found.replicas} replicas of each topic, min.insync.replicas {found.in_sync}."
    if None in every and any(every):
        yield "Where no number of replicas is given: one."
