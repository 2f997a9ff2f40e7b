"""A deliberately broken PostgreSQL sink: a transaction per task and no ledger. Not for use.

A task that loses the answer to a COMMIT (here: dies right after it) cannot find out whether its rows were committed,
and the replay writes them again.
"""

from __future__ import annotations

from dataclasses import replace

from oncebench.delivery.contract import EXACTLY_ONCE, Support
from oncebench.delivery.protocols import at_least_once
from oncebench.sinks.postgres.suite import SUITE_SINKS as _SOUND

SUPPORTS = (
    Support(
        EXACTLY_ONCE,
        "no-ledger",
        "no ledger: a lost COMMIT answer",
        expected_anomaly="DUP",
        triggering_faults=("after-prepare",),
    ),
)
KINDS = (
    replace(
        _SOUND[0].kind,
        name="broken-postgres",
        supports=SUPPORTS,
        protocols={(EXACTLY_ONCE, "no-ledger"): at_least_once},
    ),
)
SUITE_SINKS = (replace(_SOUND[0], kind=KINDS[0]),)
