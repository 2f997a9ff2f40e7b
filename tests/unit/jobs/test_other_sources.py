"""A start refuses `input=` for a query that reads something else.

The refusal names what the query reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.jobs.inputs.checks import refuse_other_source


def rows(*sources: tuple[str, Mapping[str, str]], kind: str = "StreamingRelationV2") -> Any:
    """A query with these leaves in its plan: the name and the options of each source."""
    leaves = [
        SimpleNamespace(
            isStreaming=lambda: True,
            getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind),
            extraOptions=lambda options=options: options,
            sourceName=lambda name=name: name,
        )
        for name, options in sources
    ]
    plan = SimpleNamespace(collectLeaves=lambda: SimpleNamespace(apply=leaves.__getitem__, size=lambda: len(leaves)))
    return SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: plan)))


@pytest.mark.parametrize("topic", ["orders", " orders "])
def test_a_query_of_the_named_topic_passes(topic: str) -> None:
    refuse_other_source(rows(("kafka", {"subscribe": topic})), "orders")


@pytest.mark.parametrize(
    ("sources", "kind", "read"),
    [
        ([("kafka", {"subscribe": "others"})], "StreamingRelationV2", "'others'"),
        ([("kafka", {"subscribe": "orders, others"})], "StreamingRelationV2", "'orders, others'"),
        ([("kafka", {"subscribe": "orders"})] * 2, "StreamingRelationV2", "'orders', 'orders'"),
        ([("rate", {})], "StreamingRelationV2", "a source 'rate' without the option subscribe"),
        ([("kafka", {"assign": "{}"})], "StreamingRelationV2", "a source 'kafka' without the option subscribe"),
        ([("text", {})], "StreamingRelation", "a source 'StreamingRelation'"),
    ],
)
def test_another_source_is_refused_by_its_name(sources: list[Any], kind: str, read: str) -> None:
    with pytest.raises(RefusedStart) as refused:
        refuse_other_source(rows(*sources, kind=kind), "orders")
    assert f"and the query reads {read}" in str(refused.value)
    assert str(refused.value).endswith("subscribes to, or leave out input= if it reads anything else.")
