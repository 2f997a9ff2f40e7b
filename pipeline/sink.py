"""Opens the sink that a configuration names, and checks that it takes the rows."""

from __future__ import annotations

import uuid

from oncebench.delivery.contract import Sink, SinkKind, SinkSettings, Support
from oncebench.delivery.protocols import choose
from oncebench.jobs.output import Target
from oncebench.sinks.registry import find_kind
from pipeline.config import PipelineConfig
from pipeline.rows import ID, schema_for


def kind_and_support(config: PipelineConfig) -> tuple[SinkKind, Support]:
    """Returns the kind of sink and the guarantee that a configuration names.

    Raises:
        RefusedStart: there is no such sink, or it does not support the guarantee.
    """
    kind = find_kind(config.sink)
    return kind, choose(kind, config.guarantee, config.variant)


def target_of(config: PipelineConfig) -> Target:
    """Returns the sink that a configuration names, as the checks of a start need it.

    Raises:
        RefusedStart: see `kind_and_support`.
    """
    kind, support = kind_and_support(config)
    return Target(kind, support, config.sink_id, config.output["output"], config.checkpoint)


def open_sink(kind: SinkKind, config: PipelineConfig, driver: str = "") -> Sink:
    """Returns the driver's side of the sink, not started yet.

    Args:
        kind: of the sink.
        config: the job's settings.
        driver: random name of this start, also the journal's; empty: a new one.

    Raises:
        RefusedStart: the sink cannot store a column of `rows.SCHEMA`.
    """
    sink = kind.open(
        SinkSettings(
            output=config.output,
            sink_id=config.sink_id,
            partitions=config.partitions,
            checkpoint=config.checkpoint,
            kafka=config.kafka_client,
            transaction_timeout_ms=config.transaction_timeout_ms,
            quarantine_topic=config.quarantine_topic,
            row_id=ID,
            variant=config.variant,
            driver=driver or uuid.uuid4().hex,
        )
    )
    sink.check_schema(schema_for(kind.takes, config.workload))
    return sink
