"""Checks that a query assigns rows to tasks deterministically, which exactly-once requires.

Promise: `refuse_without_shuffle` passes a query only if each of its rows comes last through a shuffle by key, into no
more tasks than the pipeline has partitions. After such a shuffle, the row alone decides its task. Without one, Spark
makes a task for each Kafka partition that has new records. Spark numbers these tasks in the order of a hash map
(KafkaMicroBatchStream.planInputPartitions, KafkaOffsetReader). A replay may number them differently, and the marks of
one partition would be read as those of another. The same happens after a shuffle by a random key, such as `rand()`: a
replay draws other numbers. A sound plan that this module does not know is refused too.
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
# The field with the key of an operator. The key of any other operator is taken to be all its input columns.
_KEYS = {
    "RepartitionByExpression": "partitionExpressions", "Aggregate": "groupingExpressions", "Window": "partitionSpec",
    "Deduplicate": "keys", "DeduplicateWithinWatermark": "keys",
    "MapGroups": "groupingAttributes", "TransformWithState": "groupingAttributes",
    "FlatMapGroupsWithState": "groupingAttributes", "FlatMapGroupsInPandasWithState": "groupingAttributes",
    "FlatMapGroupsInPandas": "groupingAttributes", "FlatMapGroupsInArrow": "groupingAttributes",
}  # fmt: skip


def refuse_without_shuffle(rows: DataFrame, partitions: int, key: str) -> None:
    """Refuses a query without a last shuffle by a deterministic key, or with too many tasks.

    Raises:
        RefusedStart: the query is refused.
    """
    remedy = f'End the query with `rows.repartition({partitions}, "{key}")`, or another column that is in the rows.'
    try:
        tasks = _tasks_by_key(rows._jdf.queryExecution().analyzed(), partitions)
    except _RandomKey as error:
        raise RefusedStart(
            f"the last shuffle of the query is by {error} (a value such as rand()), which is not deterministic. A "
            "replay would put rows into other tasks than those with their marks: take a key that depends only on the "
            f"input. {remedy}"
        ) from None
    if tasks is None:
        raise RefusedStart(
            "the last shuffle of the query is not by key, or there is none. Exactly-once keeps "
            f"marks by task number, and without such a shuffle a replay could number the tasks differently. {remedy}"
        )
    if tasks > partitions:
        raise RefusedStart(
            f"the query ends in {tasks} tasks. Exactly-once keeps marks by task number, and only for {partitions} "
            f"tasks (`partitions`; with deliver: spark.sql.shuffle.partitions). {remedy}"
        )


class _RandomKey(Exception):
    """The key of a shuffle is not deterministic; the text is the key."""


def _tasks_by_key(node: Any, partitions: int) -> int | None:
    """Returns the tasks of a logical plan; None if its last shuffle is not by key.

    Raises:
        _RandomKey: its last shuffle is by a key that a replay may compute differently.
    """
    name = node.nodeName()
    below = [child for child in _each(node.children()) if child.isStreaming()]
    if name in _BY_PLACE or (name == "Sort" and getattr(node, "global")()):  # a global sort is by range: of a sample
        return None
    if name == "RepartitionByExpression":
        by = _each(node.partitionExpressions())
        if not by or any(key.nodeName() == "SortOrder" for key in by):  # by range: of a sample of the input
            return None
        _refuse_random_key(node)
        asked = node.optNumPartitions()
        return asked.get() if asked.isDefined() else partitions
    # A join of two streams is by key; a table joined to one stream may be broadcast.
    if name in _BY_KEY or (name == "Join" and len(below) > 1):
        _refuse_random_key(node)
        return partitions
    tasks = [_tasks_by_key(child, partitions) for child in below]
    known = [number for number in tasks if number is not None]
    if not known or len(known) < len(tasks):
        return None
    # Spark merges the tasks of a union's inputs if all have the same partitioning (spark.sql.unionOutputPartitioning).
    # Inputs with equal numbers of tasks may have it. If they do not, the first batch is refused (TooManyTasks).
    return known[0] if len(set(known)) == 1 else sum(known)


def _refuse_random_key(node: Any) -> None:
    random = {column for child in _each(node.children()) for column in _random_columns(child)}
    for key in _key_of(node):
        if _is_random(key, random):
            raise _RandomKey(key.sql())


def _key_of(node: Any) -> list[Any]:
    name = node.nodeName()
    if name == "Join":
        return _each(node.expressions())
    if name in _KEYS:
        return _each(getattr(node, _KEYS[name])())
    return [column for child in _each(node.children()) for column in _each(child.output())]


def _random_columns(node: Any) -> set[int]:
    """Returns the ids of the columns in a plan that depend on a nondeterministic expression.

    Spark's analyzer moves such an expression into a projection below its operator (PullOutNondeterministic).
    """
    children = _each(node.children())
    found = {column for child in children for column in _random_columns(child)}
    if node.nodeName() == "Union":  # its columns have the ids of its first input
        for columns in zip(*(_each(each.output()) for each in (node, *children)), strict=True):
            if any(_is_random(column, found) for column in columns):
                found.add(_id(columns[0]))
    for expression in _each(node.expressions()):
        if _is_random(expression, found):
            made = [expression] if expression.nodeName() == "Alias" else _each(node.producedAttributes())
            found.update(map(_id, made))
    return found


def _is_random(expression: Any, random: set[int]) -> bool:
    return not expression.deterministic() or any(_id(column) in random for column in _each(expression.references()))


def _id(column: Any) -> int:
    return int(column.exprId().id())


def _each(found: Any) -> list[Any]:
    """The items of a Scala collection."""
    items = found.toSeq()
    return [items.apply(at) for at in range(items.size())]
