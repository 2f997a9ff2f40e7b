"""The Iceberg sinks for the registry.

The sink `iceberg` is in a local warehouse, and `iceberg-rest` in a REST catalog.

Both are one sink. A job that names a REST catalog may use either kind.

Every command of oncebench imports this file. The import of pyiceberg takes a second or two, so only `open` imports it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, SinkKind, SinkSettings, Support
from oncebench.delivery.errors import RefusedStart
from oncebench_iceberg.catalogs.configuration import import_pyiceberg

if TYPE_CHECKING:
    from oncebench.delivery.contract import Sink

# The REST catalog of the suite: https://HOST:PORT/PATH/NAMESPACE.TABLE?warehouse=NAME. Each run makes a table in that
# namespace, and the table's name is not used.
VARIABLE = "ONCEBENCH_ICEBERG_REST"
REST_SERVICE = "iceberg-rest"

SUPPORTS = (
    Support(AT_MOST_ONCE, "claim", "claim, then one snapshot per batch", default=True),
    Support(AT_LEAST_ONCE, "acknowledged", "one snapshot per batch", default=True),
    Support(EXACTLY_ONCE, "idempotent", "one snapshot per batch, with its marker in the same commit", default=True),
)
LACKS = {
    "exactly-once/two-phase": "a commit is one step of the driver, which sets the marker with it; nothing is prepared",
    "at-least-once/native": "there is no Iceberg runtime for Spark 4.2 to compare with",
}


def rest_address() -> str:
    """Returns the REST catalog of the suite. Raises `RefusedStart` if the variable is not set."""
    found = os.environ.get(VARIABLE, "")
    if not found:
        raise RefusedStart(
            f"{VARIABLE} names no REST catalog. Set it to https://HOST:PORT/PATH/NAMESPACE.TABLE in the environment."
        )
    return found


def _open(settings: SinkSettings) -> Sink:
    import_pyiceberg()
    from oncebench_iceberg.driver import open_sink  # noqa: PLC0415  see the module

    return open_sink(settings)


_LOCAL = SinkKind(name="iceberg", supports=SUPPORTS, lacks=LACKS, batch_atomic=True, open=_open)
KINDS = (_LOCAL, replace(_LOCAL, name="iceberg-rest"))
