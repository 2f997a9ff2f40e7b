"""A deliberately broken Delta sink: reuses a txnAppId with a new checkpoint. Not for use.

Every start of the driver numbers batches from 0, as a new checkpoint does, under a txnAppId that is only a name. Delta
takes every number up to the last one for written, and drops those batches without an error.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncebench.delivery.contract import EXACTLY_ONCE, SinkSettings, Support
from oncebench.delivery.decisions import pass_decision_failpoints
from oncebench.delivery.quarantine import without_rejected
from oncebench.delivery.stores.choose import Place
from oncebench.sinks.delta.log import commits
from oncebench.sinks.delta.sink import Append, DeltaSink
from oncebench.sinks.delta.suite import SUITE_SINKS as _SOUND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from oncebench.delivery.batch import Batch


class ReusedAppId(DeltaSink):
    """Appends with a batch number of its own under the sink_id."""

    def __init__(self, table: Path, sink_id: str, partitions: int, checkpoint: Place) -> None:
        super().__init__(table, sink_id, partitions, checkpoint)
        self._own_number = count()

    def append(self, rows: DataFrame) -> bool:
        """Whether Delta has taken the rows."""
        before = len(commits(self._table / "_delta_log"))
        Append(self._table, self._sink_id).write_batch(without_rejected(rows), next(self._own_number))
        return len(commits(self._table / "_delta_log")) > before


def numbered_anew(batch: Batch, sink: Any, _journal: Any, _on_lost: str) -> None:
    """Drains rows that Delta drops: Spark commits the state, and the loss stays unnoticed."""
    if not sink.append(batch.native_rows()):
        batch.drain()
    batch.failpoint("after-prepare")
    pass_decision_failpoints(batch)


def _open(settings: SinkSettings) -> DeltaSink:
    return ReusedAppId(Path(settings.output["output"]), settings.sink_id, settings.partitions, settings.checkpoint)


# The fault comes early, so that later batches have numbers that Delta takes for written.
SUPPORTS = (
    Support(
        EXACTLY_ONCE,
        "reused-app-id",
        "a new checkpoint's numbers under an old txnAppId",
        expected_anomaly="LOSS",
        triggering_faults=("after-commit@batch=3",),
    ),
)
KINDS = (
    replace(
        _SOUND[0].kind,
        name="broken-delta",
        supports=SUPPORTS,
        lacks={},
        open=_open,
        protocols={(EXACTLY_ONCE, "reused-app-id"): numbered_anew},
    ),
)
SUITE_SINKS = (replace(_SOUND[0], kind=KINDS[0]),)
