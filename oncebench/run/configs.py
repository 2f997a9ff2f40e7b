"""Builds the configurations of a run's pipeline, load generator and observer.

Promise: pure functions of the cell and its topics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncebench.delivery.failpoints import parse_fault
from oncebench.delivery.stores.choose import place_at
from oncebench.faults.disk import CHECKPOINT
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.lab import Lab
from oncebench.lab.spark.master import master_for
from oncebench.run.topics import Topics
from oncebench.scenario.cell import Cell
from oncebench.sinks.registry import SINKS
from pipeline.config import PipelineConfig

# By default Spark adds a batch without new data when the watermark has moved: a job's last windows and timers then do
# not wait for more input. A run's sessions need no timer, and each such batch would cost as much as one with data.
NO_EMPTY_BATCHES = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
# One day, so that no open session leaves the state during a run. Some runs exceed the pipeline's default, 10 minutes.
OPEN_TIMEOUT_MS = 86_400_000


def pipeline_config(cell: Cell, lab: Lab, kafka: KafkaAccess, topics: Topics, run: str, folder: Path) -> PipelineConfig:
    """Returns the pipeline's configuration.

    Args:
        kafka: Kafka as the pipeline reaches it, possibly by a proxy.
    """
    return PipelineConfig(
        **kafka.as_json(),
        input_topic=topics.input,
        output=topics.target,
        quarantine_topic=topics.quarantine,
        sink=cell.sink,
        guarantee=cell.guarantee,
        variant=cell.variant,
        sink_id=run,
        checkpoint=place_at(f"{cell.checkpoint.rstrip('/')}/{run}") if cell.checkpoint else folder / CHECKPOINT,
        record=folder,
        workload=cell.workload,
        partitions=cell.partitions,
        trigger_ms=cell.trigger_ms,
        max_events_per_batch=cell.max_events_per_batch,
        session_timeout_ms=OPEN_TIMEOUT_MS if cell.open_sessions else PipelineConfig.session_timeout_ms,
        transaction_timeout_ms=cell.transaction_timeout_ms,
        on_lost=cell.on_lost,
        checkpoint_writing=cell.checkpoint_writing,
        state_store=cell.state_store,
        faults=tuple(parse_fault(fault) for fault in cell.faults),
        progress_whole=True,  # verdict and report need every line
        trace=bool(cell.black_box),  # the names of the user's own failpoints come from the trace
        spark={**NO_EMPTY_BATCHES, **topics.target.get("spark", {}), **spark_settings(cell)},
        **master_for(
            cell,
            lab.spark([SINKS[cell.sink]], object_store=bool(cell.checkpoint)),
            None if lab.cluster is None else lab.cluster.address,
        ),
    )


def spark_settings(cell: Cell) -> dict[str, str]:
    """Returns the user's own settings of Spark."""
    pairs = (text.partition("=") for text in cell.spark_conf)
    return {name: value for name, _, value in pairs}


def load_config(cell: Cell, kafka: KafkaAccess, topics: Topics, folder: Path) -> dict[str, Any]:
    """Returns the generator's configuration (`loadgen.config`)."""
    return {
        **kafka.as_json(),
        "topic": topics.input,
        "rate": cell.rate,
        "sessions": cell.sessions,
        "shape": cell.shape,
        "record_bytes": cell.record_bytes,
        "seed": cell.seed,
        "workload": cell.workload,
        "ledger_dir": str(folder / "ledger"),
        "status_path": str(folder / "load.jsonl"),
    }


def observer_config(cell: Cell, topics: Topics, folder: Path) -> dict[str, Any]:
    """Returns the observer's configuration (`oncebench.observe.observer`)."""
    return {
        "sink": cell.sink,
        "target": topics.target,
        "observed_path": str(folder / "observed.arrow"),
        "status_path": str(folder / "observer.jsonl"),
    }
