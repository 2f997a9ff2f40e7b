"""Delta, broken on purpose: a txnAppId that outlives its checkpoint. None of this is for use.

Batches are numbered from 0 in every life of the driver, as a new checkpoint numbers them, under a txnAppId that is only
a name. Delta takes every number up to the last one for written, and drops those batches without an error.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncebench.delivery.contract import EXACTLY_ONCE, Support
from oncebench.delivery.protocols import undecided
from oncebench.sinks.delta.log import commits
from oncebench.sinks.delta.sink import KINDS as _SOUND
from oncebench.sinks.delta.sink import Append, DeltaSink, rows_only

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from oncebench.delivery.batch import Batch
    from pipeline.config import PipelineConfig


class ReusedAppId(DeltaSink):
    """Appends with a number of its own under the sink_id."""

    def __init__(self, table: Path, sink_id: str, partitions: int, checkpoint: Path) -> None:
        super().__init__(table, sink_id, partitions, checkpoint)
        self._life = count()

    def append(self, rows: DataFrame) -> bool:
        """Whether Delta has taken the rows."""
        before = len(commits(self._table / "_delta_log"))
        Append(self._table, self._sink_id).write_batch(rows_only(rows), next(self._life))
        return len(commits(self._table / "_delta_log")) > before


def numbered_anew(batch: Batch, sink: Any, _journal: Any, _on_lost: str) -> None:
    """What Delta does not take is drained, so that Spark commits the batch's state and nobody notices."""
    if not sink.append(batch.passing_rows()):
        batch.drain()
    batch.at("after-prepare")
    undecided(batch)


def _open(config: PipelineConfig) -> DeltaSink:
    return ReusedAppId(Path(config.output["output"]), config.sink_id, config.partitions, config.checkpoint)


# Early, so that batches are left whose numbers are taken for written.
SUPPORTS = (
    Support(
        EXACTLY_ONCE,
        "reused-app-id",
        "a new checkpoint's numbers under an old txnAppId",
        shows="LOSS",
        shown_by=("after-commit@batch=3",),
    ),
)
KINDS = (
    replace(
        _SOUND[0],
        name="broken-delta",
        supports=SUPPORTS,
        lacks={},
        open=_open,
        protocols={(EXACTLY_ONCE, "reused-app-id"): numbered_anew},
    ),
)
