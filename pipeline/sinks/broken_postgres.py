"""PostgreSQL, broken on purpose: a transaction per task and no ledger. None of this is for use.

Whoever loses the answer to a COMMIT (here: dies right after it) cannot know whether the rows are there, and writes them
again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline.sinks.contract import EXACTLY_ONCE, Sink, Support
from pipeline.sinks.postgres import KINDS as _SOUND
from pipeline.sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pipeline.batch import Batch
    from pipeline.config import PipelineConfig


def without_ledger(batch: Batch, sink: Sink, _journal: Any, _on_lost: str) -> None:
    """Every task commits by itself; nothing tells a replay whether it came through."""
    batch.run(sink.acknowledged())
    for point in ("before-decision", "after-decision", "mid-commit"):
        batch.at(point)


def _open(config: PipelineConfig) -> PostgresSink:
    sink = PostgresSink(config.output["output"], config.sink_id, config.partitions)
    sink.supports = SUPPORTS
    return sink


SUPPORTS = (
    Support(EXACTLY_ONCE, "no-ledger", "no ledger: a lost COMMIT answer", shows="DUP", shown_by=("after-prepare",)),
)
KINDS = (
    replace(
        _SOUND[0],
        name="broken-postgres",
        supports=SUPPORTS,
        open=_open,
        protocols={(EXACTLY_ONCE, "no-ledger"): without_ledger},
    ),
)
