"""Creates the topics of a run and the target of its sink.

Promise: topics and target are new, empty, and used by this run alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebench.faults.disk import OUTPUT
from oncebench.scenario.cell import Cell
from oncebench.servers.kafka.topics import Kafka
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.suite import Place
from pipeline.rows import KEY, schema_of

# Records of 1 MB and their headers must fit into the quarantine topic. Copies have the timestamps of their originals,
# so no retention may delete an old one before it is judged.
QUARANTINE_CONFIG = {"max.message.bytes": str(8 * 1024 * 1024), "retention.ms": "-1"}
# A row's timestamp is the time at which the broker wrote it, not a time set by the producer.
OUTPUT_CONFIG = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class Topics:
    """The topics of one run, and the sink's target (its `output` is the readable name)."""

    input: str
    quarantine: str
    target: dict[str, Any]

    def as_json(self) -> dict[str, str]:
        """Returns the names as a report lists them."""
        return {"input": self.input, "output": str(self.target["output"]), "quarantine": self.quarantine}


def make_topics(cell: Cell, kafka: Kafka, run: str, folder: Path, start_timeout_s: float) -> Topics:
    """Creates the topics and the target of `run`, whose files are in `folder`.

    `Place` describes `start_timeout_s`.
    """
    own = folder / OUTPUT
    own.mkdir(exist_ok=True)

    def make(name: str, config: Mapping[str, str] | None = None) -> str:
        return kafka.create_topic(name, cell.partitions, config, replication=cell.replication)

    place = Place(
        name=run,
        folder=own,
        partitions=cell.partitions,
        kafka=kafka.access,
        make_topic=lambda name: make(name, OUTPUT_CONFIG),
        schema=schema_of(cell.workload),
        key=KEY,
        black_box=cell.black_box,
        start_timeout_s=start_timeout_s,
    )
    return Topics(
        make(f"{run}.in"),
        make(f"{run}.quarantine", QUARANTINE_CONFIG),
        suite_sinks()[cell.sink].provide(place),
    )
