"""Lists what the tests of sinks leave out, as literals.

The code under test must not decide what it is tested for.

A case is named SINK-GUARANTEE-VARIANT. A sink that stops to declare something fails its test here, and so does a sink
that begins to.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from oncebench.delivery.contract import Support

NO_CLAIM = "the sink stores no claim"
NO_ROWS_TO_COMPARE = "neither an upsert nor Spark's own writer stores the rows of a batch to compare with"
NO_DRIVER = "the sink notes no driver: it compares the batches themselves"
NO_DRIVER_IN_PACKAGE = "the sink of a package may note no driver: its page then says what a copy of a job can do"
NO_MARKERS = "keeps no marker of a batch, so nothing in the output is older"
NO_IDENTITY = "its server gives an output no identity"

# Why a test leaves cases out -> these cases.
SKIPS: Mapping[str, frozenset[str]] = {
    NO_CLAIM: frozenset({"pravega-at-most-once-claim"}),
    NO_ROWS_TO_COMPARE: frozenset({"delta-exactly-once-native", "postgres-exactly-once-upsert"}),
    NO_DRIVER: frozenset(
        {
            "delta-at-most-once-claim",
            "delta-exactly-once-idempotent",
            "pravega-at-most-once-claim",
            "pravega-exactly-once-two-phase",
        }
    ),
    NO_DRIVER_IN_PACKAGE: frozenset({"pravega-at-most-once-claim", "pravega-exactly-once-two-phase"}),
    NO_MARKERS: frozenset(
        {"delta-exactly-once-native", "postgres-exactly-once-upsert", "pravega-exactly-once-two-phase"}
    ),
    NO_IDENTITY: frozenset({"pravega-exactly-once-two-phase", "sqlite-exactly-once-idempotent"}),
}

IN_TASKS = frozenset({"mid-write", "before-prepare", "after-prepare"})
DECISION = frozenset({"before-decision", "after-decision"})
WRITTEN = ("before-decision", "after-decision", "mid-commit", "after-commit")
# By variant: where a batch dies -> the failpoints that its replay does not reach.
UNREACHED: Mapping[str, Mapping[str, frozenset[str]]] = {
    "two-phase": dict.fromkeys(("after-decision", "mid-commit", "after-commit"), IN_TASKS | DECISION),
    "idempotent": dict.fromkeys(WRITTEN, IN_TASKS),
    "upsert": {},
}
# PostgreSQL's tasks have committed when they reach after-prepare; Kafka's and SQLite's commit after it.
UNREACHED_OF: Mapping[str, Mapping[str, frozenset[str]]] = {
    "postgres-exactly-once-idempotent": dict.fromkeys(("after-prepare", *WRITTEN), IN_TASKS),
}


def skip_if(lacks: bool, why: str, sink: str, support: Support) -> None:
    """Skips a case that lacks what the test looks at; fails if the list does not agree."""
    case = f"{sink}-{support.guarantee}-{support.variant}"
    assert lacks == (case in SKIPS[why]), f"{case}: {why}: {lacks}, and tests/contract/skips.py has the opposite"
    if lacks:
        pytest.skip(why)
