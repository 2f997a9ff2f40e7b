"""Builds the configurations of a run's pipeline, load generators and observers.

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
from oncebench.record.numbered import numbered
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


def load_configs(cell: Cell, kafka: KafkaAccess, topics: Topics, folder: Path) -> list[dict[str, Any]]:
    """Returns the configuration of each generator (`loadgen.config`)."""
    ledgers, statuses = (numbered(name, cell.generators) for name in ("ledger", "load.jsonl"))
    whole = {
        **kafka.as_json(),
        "topic": topics.input,
        "rate": cell.rate,
        "sessions": cell.sessions,
        "shape": cell.shape,
        "record_bytes": cell.record_bytes,
        "skew": cell.skew,
        "seed": cell.seed,
        "workload": cell.workload,
        **({"replayed": _replayed(cell)} if cell.records else {}),
    }
    return [
        {**whole, "ledger_dir": str(folder / ledger), "status_path": str(folder / status),
         **_share(number, cell.generators, folder)}
        for number, (ledger, status) in enumerate(zip(ledgers, statuses, strict=True), 1)
    ]  # fmt: skip


def load_plans(cell: Cell, folder: Path) -> list[Path]:
    """Returns the plan of each generator, which the generator writes before its first event."""
    return [folder / ledger / "plan.json" for ledger in numbered("ledger", cell.generators)]


def warm_up_file(cell: Cell, number: int) -> dict[str, Any] | None:
    """Returns the file of warm-up batch `number`; None if the load replays no file.

    The batch has the first records of the load, under ids of their own.
    """
    return {**_replayed(cell), "passes": None, "prefix": f"w{number}-"} if cell.records else None


def _replayed(cell: Cell) -> dict[str, Any]:
    """Returns the cell's file as a generator takes it (`loadgen.config.Replayed`)."""
    return {"path": str(Path(cell.records).absolute()), "key": cell.records_key, "passes": cell.passes}


def _share(number: int, generators: int, folder: Path) -> dict[str, Any]:
    """The share of a generator; nothing if it is the only one."""
    if generators == 1:
        return {}
    return {"generator": number, "generators": generators, "meeting_dir": str(folder / "meeting")}


def observer_configs(cell: Cell, topics: Topics, folder: Path) -> list[dict[str, Any]]:
    """Returns the configuration of each observer (`oncebench.observe.observer`)."""
    observed, statuses = (numbered(name, cell.observers) for name in ("observed.arrow", "observer.jsonl"))
    return [
        {"sink": cell.sink, "target": topics.target, "observed_path": str(folder / rows),
         "status_path": str(folder / status),
         **({} if cell.observers == 1 else {"part": number, "parts": cell.observers})}
        for number, (rows, status) in enumerate(zip(observed, statuses, strict=True), 1)
    ]  # fmt: skip
