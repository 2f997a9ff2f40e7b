"""Settings of topics, and records for a quarantine topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from oncebench.delivery.quarantine import FIELDS

LIMIT_S = 60.0  # a broker answers in milliseconds, and in many seconds where it shares its cores


def configure(admin: AdminClient, topic: str, settings: Mapping[str, object]) -> None:
    """Changes settings of a topic.

    The broker acknowledges them some time before it applies them.
    """
    entries = [
        ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_S)


def rejected(records: Iterable[tuple[Any, ...]]) -> pa.StructArray:
    """Rejected records, each with the fields of the quarantine column.

    The fields are reason, partition, offset, key and value.
    """
    kinds = (pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.binary())
    columns = [pa.array(column, kind) for column, kind in zip(zip(*records, strict=True), kinds, strict=True)]
    return pa.StructArray.from_arrays(columns, names=list(FIELDS))
