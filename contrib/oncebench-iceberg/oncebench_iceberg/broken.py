"""A deliberately broken Iceberg sink: commits with pyiceberg's own retries. Not for use.

`oncebench_iceberg.retried` describes what goes wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oncebench.delivery.contract import EXACTLY_ONCE, SinkSettings, Support
from oncebench.delivery.decisions import pass_decision_failpoints
from oncebench_iceberg.suite import SUITE_SINKS as _SOUND

if TYPE_CHECKING:
    from oncebench.delivery.batch import Batch
    from oncebench.delivery.contract import Sink


def retried_append(batch: Batch, sink: Any, _journal: Any, _on_lost: str) -> None:
    """Writes files, then commits without another look at the marker."""
    done = {part: (mark.rows, mark.digest) for part, mark in sink.marks().items() if mark.batch == batch.id}
    if done:
        batch.drain(done)
    else:
        batch.run(sink.staging_writer())
        sink.commit_staged()
    pass_decision_failpoints(batch)


def _open(settings: SinkSettings) -> Sink:
    from oncebench_iceberg.retried import open_sink  # noqa: PLC0415  see `oncebench_iceberg.sink`

    return open_sink(settings)


SUPPORTS = (
    Support(
        EXACTLY_ONCE,
        "retried-append",
        "one snapshot per batch with its marker, by an append that pyiceberg retries",
        expected_anomaly="DUP",
        triggering_faults=("after-prepare:zombie",),
    ),
)
KINDS = (
    replace(
        _SOUND[0].kind,
        name="broken-iceberg",
        supports=SUPPORTS,
        lacks={},
        open=_open,
        protocols={(EXACTLY_ONCE, "retried-append"): retried_append},
    ),
)
SUITE_SINKS = (replace(_SOUND[0], kind=KINDS[0]),)
