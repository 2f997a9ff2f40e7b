"""The searches: our guarantees, and each promise of the store or of its client left out.

Promise: every variant states its expected result.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.delivery.protocols import choose
from oncebench.delivery.stores.objects import ObjectStore
from proofs.crash_states.attempts import Pipeline
from proofs.crash_states.promises import LOSS, STUCK
from proofs.crash_states.variants import FORMATS
from proofs.object_states.search import Found, Rules, Scenario, kills, lost_answers, search, second_drivers


@dataclass(frozen=True)
class Variant:
    """A search and its expected result.

    Attributes:
        name: the name in tables.
        guarantee: the guarantee, in its default variant, into JSON-lines files.
        scenario: what disturbs a driver.
        rules: promises of the store that are left out.
        client: replaces code of the client inside.
        expected: anomalies that must occur; empty: every case is right.
    """

    name: str
    guarantee: str
    scenario: Scenario
    rules: Rules | None = None
    client: Callable[[], AbstractContextManager[Any]] = nullcontext
    expected: frozenset[str] = frozenset()

    def run(self, every: int = 1) -> Found:
        """Runs the search, and judges one of `every` cases.

        With expected anomalies, the search ends when they have occurred.
        """
        kind = FORMATS["files-jsonl"][0]
        with self.client():
            pipeline = Pipeline(kind, choose(kind, self.guarantee, None))
            return search(pipeline, self.scenario, self.rules, every, self.expected)

    def surprises(self, found: Found) -> bool:
        """Whether a search has another result than expected."""
        return not self.expected <= set(found.wrong) or (not self.expected and bool(found.wrong))


def _without_reading_back() -> AbstractContextManager[Any]:
    return mock.patch.object(ObjectStore, "_is", lambda *_: False)


SOUND = tuple(
    Variant(f"{guarantee}, {what}", guarantee, scenario)
    for guarantee in (EXACTLY_ONCE, AT_MOST_ONCE, AT_LEAST_ONCE)
    for what, scenario in (("lost answers", lost_answers), ("kills", kills), ("second drivers", second_drivers))
)
BROKEN = (
    Variant(
        "exactly-once, a 412 is taken as another's", EXACTLY_ONCE, lost_answers,
        client=_without_reading_back, expected=frozenset({STUCK}),
    ),
    Variant(
        "exactly-once, a store that ignores the condition", EXACTLY_ONCE, second_drivers,
        Rules(ignores_condition=True), expected=frozenset({LOSS}),
    ),
)  # fmt: skip
DECLARED = (
    Variant(
        "exactly-once, Spark's logs replace entries", EXACTLY_ONCE, second_drivers,
        Rules(logs_replace=True), expected=frozenset({LOSS}),
    ),
)  # fmt: skip
REDUNDANT = (
    Variant("exactly-once, a list of the journal lags by one put", EXACTLY_ONCE, second_drivers, Rules(list_lags=True)),
)
GROUPS = {
    "ours": SOUND,
    "declared limit": DECLARED,
    "one promise left out": BROKEN,
    "redundant promise left out": REDUNDANT,
}
