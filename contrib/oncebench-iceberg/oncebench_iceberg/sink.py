"""The Iceberg sink for the registry.

Every command of oncebench imports this file. The import of pyiceberg takes a second or two, so it comes with `open`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, SinkKind, SinkSettings, Support

if TYPE_CHECKING:
    from oncebench.delivery.contract import Sink

SUPPORTS = (
    Support(AT_MOST_ONCE, "claim", "claim, then one snapshot per batch", default=True),
    Support(AT_LEAST_ONCE, "acknowledged", "one snapshot per batch", default=True),
    Support(EXACTLY_ONCE, "idempotent", "one snapshot per batch, with its marker in the same commit", default=True),
)
LACKS = {
    "exactly-once/two-phase": "a commit is one step of the driver, which sets the marker with it; nothing is prepared",
    "at-least-once/native": "there is no Iceberg runtime for Spark 4.2 to compare with",
}


def _open(settings: SinkSettings) -> Sink:
    from oncebench_iceberg.driver import open_sink  # noqa: PLC0415  see the module

    return open_sink(settings)


KINDS = (SinkKind(name="iceberg", supports=SUPPORTS, lacks=LACKS, batch_atomic=True, open=_open),)
