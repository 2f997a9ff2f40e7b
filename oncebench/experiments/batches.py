"""Times generated batches under several guarantees: what protocol and sink add to a batch.

Usage: `python -m oncebench.experiments.batches FOLDER`, in a process of its own. FOLDER contains `plan.json` ({"rows",
"rounds", "seed"}) and one pipeline configuration per arm, `arm-*.json`. An arm is one guarantee of one sink.
`batches.jsonl` gets a line {"round", "arm", "ms", "steps_ms"} for each batch. A plan with "input", a topic, has
"events" in place of "rows": its batches come from the whole pipeline (`whole_batches`).

Promise: all arms run in one process with one Spark, one batch each per round. The seed determines the random order of
each round. So other load of the machine affects all arms alike. The same holds for the work that a batch leaves behind,
such as a broker's transaction markers. Spark generates the rows at almost no cost. Source, state and Spark's logs are
not included: the time covers `oncebench.delivery.protocols` with a sink, and the one Spark job that they need.
Failures: a sink refuses to start, or a batch fails. The log ends with the message, and the exit code is 2.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncebench.delivery import quarantine
from oncebench.delivery.batch import Batch, deliverable, warm_up
from oncebench.delivery.errors import NO_RESTART_HELPS, REFUSED, STOPPED, PipelineError, RefusedStart
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.journal import Identity, open_journal
from oncebench.delivery.protocols import native, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.experiments.whole_batches import take_turns, with_input
from oncebench.jobs.exits import cause_of
from oncebench.record.json_lines import LineWriter
from oncebench.sinks.registry import SINKS
from pipeline.config import PipelineConfig, read_config
from pipeline.rows import SCHEMA, rows_for
from pipeline.sink import kind_and_support, open_sink
from pipeline.spark.session import session
from pipeline.spark.sockets import short_sockets
from pipeline.spark.temporary import own_temporary

# Rounds until the JVM has compiled the code of a batch. Afterwards the times of 200 rounds showed no trend.
WARM_ROUNDS = 20
ROWS_PER_SESSION = 20


class Arm:
    """One guarantee of one sink, ready to deliver."""

    def __init__(self, config: PipelineConfig, spark: SparkSession) -> None:
        self._config = config
        self._kind, support = kind_and_support(config)
        self._sink = open_sink(self._kind, config)
        self._protocol = protocol_of(self._kind, support)
        identity = Identity(config.sink_id, config.sink, config.guarantee, config.variant, config.partitions)
        self._journal = open_journal(config.checkpoint, identity)
        self._sink.start(support, self._journal.generation, [])
        self._failpoints = Failpoints((), config.record / "hits.jsonl", None)
        self._quarantine = Quarantine(config.quarantine_topic, config.input_topic, config.kafka_client)
        tasks = spark.range(0, config.partitions, 1, config.partitions)
        warm_up(tasks, self._sink.warm_up_writer(), self._failpoints, self._quarantine)

    def deliver(self, rows: DataFrame, number: int) -> tuple[float, dict[str, float]]:
        """Delivers a batch; returns its time and the times of the protocol's steps, in ms."""
        rows = rows_for(self._kind.takes, rows)
        rows = rows if self._protocol is native else deliverable(rows, self._sink)
        batch = Batch(rows, number, self._config.partitions, self._failpoints, self._quarantine)
        started = time.perf_counter()
        self._protocol(batch, self._sink, self._journal, self._config.on_lost)
        spent = (time.perf_counter() - started) * 1000
        self._journal.prune(number)
        return spent, batch.timings_ms

    def close(self) -> None:
        """Releases the sink's resources."""
        self._sink.close()


def generated_rows(spark: SparkSession, rows: int, number: int, partitions: int) -> DataFrame:
    """Returns rows of whole sessions, with the schema of the stateful operator's output."""
    columns = {
        "session_key": f.concat(f.lit(f"r{number}-"), (f.col("id") / ROWS_PER_SESSION).cast("long").cast("string")),
        "j": (f.col("id") % ROWS_PER_SESSION).cast("int"),
        "events": f.lit(5),
        "total": f.col("id") * 7919 % 1_000_000,
        "checksum": f.col("id") * 104_729 % 4_294_967_291,
        "ended_at": f.lit(1_700_000_000_000_000) + f.col("id"),
    }
    wanted = [columns[field.name].cast(field.dataType).alias(field.name) for field in SCHEMA]
    rejected = f.lit(None).cast(quarantine.TYPE).alias(quarantine.COLUMN)
    return spark.range(0, rows, 1, partitions).select(*wanted, rejected)


def run(folder: Path) -> None:
    """Runs every round with every arm."""
    plan = json.loads((folder / "plan.json").read_text())
    configs = {path.stem.removeprefix("arm-"): read_config(path) for path in sorted(folder.glob("arm-*.json"))}
    kinds = [SINKS[config.sink] for config in configs.values()]
    with own_temporary(next(iter(configs.values()))) as temporary, short_sockets(temporary) as first:
        spark = session(first, {name: value for kind in kinds for name, value in kind.spark.items()})
        arms = {name: Arm(config, spark) for name, config in configs.items()}
        lines, orders = folder / "batches.jsonl", partial(order_of, seed=plan["seed"])
        try:
            if "input" in plan:
                config = with_input(first, plan["input"], plan["events"], folder / "checkpoint")
                deliver = {name: arm.deliver for name, arm in arms.items()}
                take_turns(spark, config, deliver, orders, plan["rounds"], plan["suite"], lines)
            else:
                _take_turns(spark, arms, orders, plan, first.partitions, lines)
        except Exception as failure:
            traceback.print_exc()
            raise cause_of(failure) from failure  # while the JVM runs, which holds the texts
        finally:
            for arm in arms.values():
                arm.close()
            spark.stop()


def order_of(names: Sequence[str], number: int, seed: int) -> list[str]:
    """Returns the order of the arms in a round of a series with this seed.

    Over many rounds, each arm follows each other arm equally often.
    """
    return random.Random(f"{seed}.{number}").sample(names, len(names))


def _take_turns(
    spark: SparkSession,
    arms: Mapping[str, Arm],
    orders: Callable[[Sequence[str], int], list[str]],
    plan: Mapping[str, int],
    partitions: int,
    path: Path,
) -> None:
    names = list(arms)
    with LineWriter(path) as lines:
        for number in range(WARM_ROUNDS + plan["rounds"]):
            for name in orders(names, number):
                rows = generated_rows(spark, plan["rows"], number, partitions)
                spent, steps = arms[name].deliver(rows, number)
                lines.append({"round": number - WARM_ROUNDS, "arm": name, "ms": spent, "steps_ms": steps})


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]))
    except PipelineError as error:
        print(f"{REFUSED if isinstance(error, RefusedStart) else STOPPED}{error}", file=sys.stderr)
        sys.exit(NO_RESTART_HELPS)
