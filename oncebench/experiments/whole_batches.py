"""Times batches of the whole pipeline under several guarantees, in turns.

One streaming query reads the input topic in batches of equal size. It checks the events, keeps the sessions in its
state and makes the rows, as the pipeline does. Each batch goes to one arm, in the order of `batches.order_of`.

Promise: a line has the time from the end of one batch to the end of the next. So it includes everything that a batch
takes: the source, the state, Spark's planning and Spark's logs. All arms share one process, one state and one input, so
their difference is that of their guarantees. The CPU is that of the suite's children: Spark, its Python workers, the
broker and the sink's server.

What can go wrong: work that a batch leaves behind counts for the batch after it. The random order spreads it over all
arms, but an arm seldom follows itself. So an arm that leaves much behind looks a little cheaper than it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession

from oncebench.delivery.errors import QueryDied
from oncebench.jobs.checkpoint import offsets_in
from oncebench.jobs.query import in_checkpoint
from oncebench.observe.procfs import read_cpu
from oncebench.record.json_lines import LineWriter
from pipeline.config import PipelineConfig
from pipeline.workloads.queries import query_of

# Rounds that are not counted. In two series of 23 arms, means over five rounds then stayed within 4 % until round 30.
# With five arms the warm-up has fewer batches, and the next eight rounds still became 13 % faster, all arms alike.
WARM_ROUNDS = 6

# Spark divides a batch's size by the partitions' shares of the backlog, and rounds down.
SIZE_TOLERANCE = 0.01

Deliver = Callable[[DataFrame, int], tuple[float, dict[str, float]]]


def batches_of(arms: int, rounds: int) -> int:
    """Returns the number of batches that the input must have."""
    return arms * (WARM_ROUNDS + rounds)


def fewest_events(partitions: int) -> int:
    """Returns the smallest size of a batch for which rounding is within the tolerance."""
    return math.ceil(partitions / SIZE_TOLERANCE)


def arm_of(number: int, orders: Callable[[Sequence[str], int], list[str]], names: Sequence[str]) -> tuple[int, str]:
    """Returns the round of a batch, counted from the first one of the warm-up, and its arm."""
    at, place = divmod(number, len(names))
    return at, orders(names, at)[place]


def take_turns(
    spark: SparkSession,
    config: PipelineConfig,
    arms: Mapping[str, Deliver],
    orders: Callable[[Sequence[str], int], list[str]],
    rounds: int,
    suite: int,
    path: Path,
) -> None:
    """Runs the query until it has read the input; writes a line for each batch.

    Args:
        spark: the session of all arms.
        config: the pipeline's settings; `max_events_per_batch` is the size of a batch.
        arms: delivers a batch, by name.
        orders: see `batches.order_of`.
        rounds: those that count.
        suite: pid of the process whose children do the work.
        path: of the lines.

    Raises:
        QueryDied: a batch had another number of events, so the batches cannot be compared, or there were too few. A
            batch of another size has no line.
    """
    names, done = list(arms), 0
    wanted, size = batches_of(len(names), rounds), config.max_events_per_batch or 0
    with LineWriter(path) as lines:
        ended_s, used_s, read = time.perf_counter(), _cpu_s(suite), 0

        def deliver(rows: DataFrame, number: int) -> None:
            nonlocal ended_s, used_s, read, done
            at, name = arm_of(number, orders, names)
            sink_ms, steps = arms[name](rows, at)
            took_ms = (time.perf_counter() - ended_s) * 1000
            cpu_s = _cpu_s(suite)
            before, read = read, sum(offsets_in(config.checkpoint, number, config.input_topic).values())
            if number < wanted:
                refuse_other_size(number, read - before, size)
                lines.append({"round": at - WARM_ROUNDS, "arm": name, "events": size,
                              "ms": took_ms, "cpu_ms": (cpu_s - used_s) * 1000,
                              "sink_ms": sink_ms, "steps_ms": steps})  # fmt: skip
                done += 1
            ended_s, used_s = time.perf_counter(), cpu_s

        writer = query_of(config.workload)(spark, config).writeStream.foreachBatch(deliver)
        query = in_checkpoint(writer, config.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    if done < wanted:
        raise QueryDied(f"the input ended after {done:,} of {wanted:,} batches. Run the command again.")


def refuse_other_size(number: int, events: int, wanted: int) -> None:
    """Checks that a batch had about the wanted number of events.

    Raises:
        QueryDied: it had clearly more or fewer.
    """
    if abs(events - wanted) > SIZE_TOLERANCE * wanted:
        raise QueryDied(
            f"batch {number} had {events:,} events instead of {wanted:,}, so its time cannot be compared. Run the "
            "command again, with more --events."
        )


def _cpu_s(suite: int) -> float:
    """Returns the CPU seconds of all processes below a process.

    They include those of ended children.
    """
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for pid in psutil.pids():
        with suppress(OSError):  # it has just ended
            parents[pid], used[pid] = read_cpu(pid)
    return sum(cpu_s for pid, cpu_s in used.items() if _is_below(pid, suite, parents))


def _is_below(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def with_input(config: PipelineConfig, topic: str, events: int, checkpoint: Path) -> PipelineConfig:
    """Returns the settings of the query that all arms share."""
    return replace(config, input_topic=topic, max_events_per_batch=events, checkpoint=checkpoint)
