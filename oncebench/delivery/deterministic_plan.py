"""Checks that a query assigns rows to tasks deterministically, which exactly-once requires.

Promise: `refuse_without_shuffle` passes a query only if each of its rows comes through a shuffle by key. After such a
shuffle, the row alone decides its task. Without one, Spark makes a task for each Kafka partition that has new records.
Spark numbers these tasks in the order of a hash map (KafkaMicroBatchStream.planInputPartitions, KafkaOffsetReader). A
replay may number them differently, and the marks of one partition would be read as those of another. A sound plan that
this module does not know is refused too.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from oncebench.delivery.errors import RefusedStart

# Spark's logical operators that distribute rows by a key (their physical ones require a ClusteredDistribution).
# `Repartition` is not among them: it distributes round-robin, which depends on where the rows were before.
_BY_KEY = frozenset(
    {
        "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Window", "MapGroups", "CoGroup",
        "TransformWithState", "TransformWithStateInPySpark", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow",
    }
)  # fmt: skip


def refuse_without_shuffle(rows: DataFrame, partitions: int, key: str) -> None:
    """Raises RefusedStart for a query whose rows reach the sink without a shuffle by key."""
    if not _distributed_by_key(rows._jdf.queryExecution().analyzed()):
        raise RefusedStart(
            "the query in pipeline/query.py has no shuffle by key before the sink. Exactly-once keeps marks by task "
            "number, and without a shuffle a replay could number the tasks differently. End the query with "
            f'`rows.repartition({partitions}, "{key}")`, or with another column that is in the rows.'
        )


def _distributed_by_key(node: Any) -> bool:
    """Whether every row of a stream's logical plan comes through a shuffle by key."""
    name, children = node.nodeName(), node.children()
    below = [child for child in map(children.apply, range(children.size())) if child.isStreaming()]
    if name in _BY_KEY:
        return True
    if name == "RepartitionByExpression":  # a repartition by range depends on a sample of the input tasks
        by = node.partitionExpressions()
        if by.size() and not any(by.apply(at).nodeName() == "SortOrder" for at in range(by.size())):
            return True
    if name == "Join" and len(below) > 1:  # two streams; a table that is joined to one stream may be broadcast
        return True
    return bool(below) and all(map(_distributed_by_key, below))
