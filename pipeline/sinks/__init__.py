"""The sinks: one file each, made from a pipeline's configuration. A new sink is added to SINKS and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.sinks.contract import Sink, Support
from pipeline.sinks.kafka import KafkaSink

if TYPE_CHECKING:
    from pipeline.config import PipelineConfig


def _kafka(config: PipelineConfig) -> Sink:
    return KafkaSink(
        topic=config.output,
        sink_id=config.sink_id,
        partitions=config.partitions,
        client=config.kafka_client,
        transaction_timeout_ms=config.transaction_timeout_ms,
        quarantine_topic=config.quarantine_topic,
    )


SINKS: Mapping[str, Callable[[PipelineConfig], Sink]] = {"kafka": _kafka}
# What each sink declares, readable without connecting to anything.
SUPPORTS: Mapping[str, Sequence[Support]] = {"kafka": KafkaSink.supports}
