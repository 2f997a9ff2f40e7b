"""Checks that a query assigns rows to tasks deterministically, which exactly-once requires.

Promise: `refuse_without_shuffle` passes a query only if each of its rows comes last through a shuffle by key, into no
more tasks than the pipeline has partitions. After such a shuffle, the row alone decides its task. Without one, Spark
makes a task for each Kafka partition that has new records. Spark numbers these tasks in the order of a hash map
(KafkaMicroBatchStream.planInputPartitions, KafkaOffsetReader). A replay may number them differently, and the marks of
one partition would be read as those of another. A sound plan that this module does not know is refused too.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from oncebench.delivery.errors import RefusedStart

# Spark's logical operators that distribute rows by a key (their physical ones require a ClusteredDistribution).
_BY_KEY = frozenset(
    {
        "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Window", "MapGroups", "CoGroup",
        "TransformWithState", "TransformWithStateInPySpark", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow",
    }
)  # fmt: skip
# Operators that distribute rows by where they were before: round-robin, or by the places of tasks (coalesce). Spark's
# optimizer also removes a shuffle by key directly below most of them (CollapseRepartition).
_BY_PLACE = frozenset({"Repartition", "RebalancePartitions"})


def refuse_without_shuffle(rows: DataFrame, partitions: int, key: str) -> None:
    """Refuses a query without a last shuffle by key, or with too many tasks (RefusedStart)."""
    tasks = _tasks_by_key(rows._jdf.queryExecution().analyzed(), partitions)
    remedy = f'End the query with `rows.repartition({partitions}, "{key}")`, or another column that is in the rows.'
    if tasks is None:
        raise RefusedStart(
            "the last shuffle of the query in pipeline/query.py is not by key, or there is none. Exactly-once keeps "
            f"marks by task number, and without such a shuffle a replay could number the tasks differently. {remedy}"
        )
    if tasks > partitions:
        raise RefusedStart(
            f"the query in pipeline/query.py ends in {tasks} tasks. Exactly-once keeps marks by task number, and only "
            f"for the {partitions} partitions of the pipeline. {remedy}"
        )


def _tasks_by_key(node: Any, partitions: int) -> int | None:
    """Returns the tasks of a logical plan; None if its last shuffle is not by key."""
    name, children = node.nodeName(), node.children()
    below = [child for child in map(children.apply, range(children.size())) if child.isStreaming()]
    if name in _BY_PLACE:
        return None
    if name == "RepartitionByExpression":
        by = node.partitionExpressions()
        by_range = any(by.apply(at).nodeName() == "SortOrder" for at in range(by.size()))  # of a sample of the input
        asked = node.optNumPartitions()
        return None if by_range or not by.size() else asked.get() if asked.isDefined() else partitions
    if name in _BY_KEY:
        return partitions
    if name == "Join" and len(below) > 1:  # of two streams; a table joined to one stream may be broadcast
        return partitions
    tasks = [_tasks_by_key(child, partitions) for child in below]
    known = [number for number in tasks if number is not None]
    if not known or len(known) < len(tasks):
        return None
    # Spark merges the tasks of a union's inputs if all have the same partitioning (spark.sql.unionOutputPartitioning).
    # Inputs with equal numbers of tasks may have it. If they do not, the first batch is refused (TooManyTasks).
    return known[0] if len(set(known)) == 1 else sum(known)
