"""What of a query's plan exactly-once rests on: that a row is in the same task again when its batch is run again.

Promise: `refuse_without_shuffle` lets a query pass only if each of its rows comes through a shuffle by key, after which
a row's task follows from the row. What can go wrong without one: Spark makes a task for each Kafka partition that has
new records, and numbers them in the order of a hash map (KafkaMicroBatchStream.planInputPartitions, by way of
KafkaOffsetReader's offset ranges), which is another one in a replay; marks and decisions of a partition would then be
taken for those of another. A plan that is sound and not known here is refused too.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from oncebench.delivery.errors import RefusedStart

# Spark's logical operators that deal rows out by a key (ClusteredDistribution of their physical ones), by class.
# `Repartition` is none: it deals out in turn, from where the rows stood before.
_BY_KEY = frozenset(
    {
        "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Window", "MapGroups", "CoGroup",
        "TransformWithState", "TransformWithStateInPySpark", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow",
    }
)  # fmt: skip


def refuse_without_shuffle(rows: DataFrame, partitions: int, key: str) -> None:
    """Raises RefusedStart for a query of which rows reach the sink without a shuffle by key."""
    if not _dealt_by_key(rows._jdf.queryExecution().analyzed()):
        raise RefusedStart(
            "the query in pipeline/query.py gives rows that no shuffle by key has dealt out to its tasks. Exactly-once "
            "keeps its marks by number of task, and a replay would number such tasks otherwise. End the query with "
            f'`rows.repartition({partitions}, "{key}")`, or another column that is in the rows.'
        )


def _dealt_by_key(node: Any) -> bool:
    """Whether every row of a stream's logical plan has come through a shuffle by key."""
    name, children = node.nodeName(), node.children()
    below = [child for child in map(children.apply, range(children.size())) if child.isStreaming()]
    if name in _BY_KEY:
        return True
    if name == "RepartitionByExpression":  # by range it follows a sample, which depends on the tasks before
        by = node.partitionExpressions()
        if by.size() and not any(by.apply(at).nodeName() == "SortOrder" for at in range(by.size())):
            return True
    if name == "Join" and len(below) > 1:  # of two streams; a table beside one stream may be broadcast
        return True
    return bool(below) and all(map(_dealt_by_key, below))
