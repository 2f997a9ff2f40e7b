"""Measures how long the observer takes to see a row after it became visible.

    python -m tools.visibility_delay [BUSY] [SINK ...]

Takes some 15 s per sink. Use a quiet machine. BUSY: the number of processes that keep the processors busy meanwhile.

A separate process makes steps of ROWS rows visible at random moments. It takes the time right after each step: after
the rename, the COMMIT, the rename of the log entry, or the acknowledgement. The observer's own loop reads the sink
meanwhile. Per sink the tool prints the delay (mean, median, p99, in ms) and the share of a core that the observer takes
while the sink is idle. For PostgreSQL it also prints the share that the server session takes.

Limit: the call that makes a step visible returns slightly later than the step is visible. A delay may come out some
tens of microseconds too small. Kafka's acknowledgement may even arrive after the observer has the row.
"""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from psycopg import sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType

from oncebench.downloads.java import find_java
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.lab import own_kafka
from oncebench.observe.observer import follow
from oncebench.record import OBSERVED
from oncebench.record.json_lines import LineWriter
from oncebench.record.streams import StreamWriter, read_stream
from oncebench.servers.sink_servers import open_services
from oncebench.sinks.postgres.connection import connect
from oncebench.sinks.reader import now_us
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.suite import Place
from pipeline.rows import KEY, ROW, SCHEMA

STEPS, ROWS = 150, 100  # 100 rows: a batch of five sessions
WARM_UP = 10  # steps that include imports and first files, and do not count
PAUSE_S = (0.04, 0.12)  # between two steps, random so that steps never align with polls
READ_S = 2.0  # time to read the existing rows before the idle cost is measured
IDLE_S = 4.0  # how long an idle sink is followed to measure its cost
ALL = ("files-jsonl", "files-parquet", "delta", "postgres", "sqlite", "kafka")
Publish = Callable[[int], int]  # makes a step visible, and returns its time in epoch µs


def step(number: int) -> pa.RecordBatch:
    """The rows of a step; their key is the number of the step."""
    strings = {field.name for field in SCHEMA if isinstance(field.dataType, StringType)}
    rows = [{name: str(number) if name in strings else at for name in ROW} for at in range(ROWS)]
    return pa.RecordBatch.from_pylist(rows, to_arrow_schema(SCHEMA))


def files(suffix: str, target: Mapping[str, Any]) -> Publish:
    folder = Path(target["output"])

    def publish(number: int) -> int:
        hidden = folder / f".{number}"
        if suffix == "jsonl":
            hidden.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in step(number).to_pylist()))
        else:
            pq.write_table(pa.Table.from_batches([step(number)]), hidden)
        hidden.rename(folder / f"part-{number}.{suffix}")
        return now_us()

    return publish


def delta(target: Mapping[str, Any]) -> Publish:
    folder = Path(target["output"])

    def publish(number: int) -> int:
        if number == 0:
            deltalake.write_deltalake(str(folder), pa.Table.from_batches([step(0)]))
            return now_us()
        # delta-rs does more work after its commit, which would delay the time stamp. So the tool writes the log entry.
        data = folder / f"part-{number}.parquet"
        pq.write_table(pa.Table.from_batches([step(number)]), data)
        stamp_ms = now_us() // 1000
        entry = folder / "_delta_log" / f".{number}"
        entry.write_text(
            f'{{"add":{{"path":"{data.name}","partitionValues":{{}},"size":{data.stat().st_size},'
            f'"modificationTime":{stamp_ms},"dataChange":true}}}}\n'
        )
        entry.rename(entry.with_name(f"{number:020}.json"))
        return now_us()

    return publish


def postgres(target: Mapping[str, Any]) -> Publish:
    connection = connect("visibility-delay")
    into = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(target["output"]), sql.SQL(", ").join(map(sql.Identifier, ROW))
    )

    def publish(number: int) -> int:
        with connection.transaction(), connection.cursor() as cursor, cursor.copy(into) as copy:
            for row in step(number).to_pylist():
                copy.write_row([row[name] for name in ROW])
        return now_us()

    return publish


def sqlite(target: Mapping[str, Any]) -> Publish:
    connection = sqlite3.connect(target["output"], isolation_level=None)
    into = f"INSERT INTO rows ({', '.join(ROW)}) VALUES ({', '.join('?' for _ in ROW)})"  # noqa: S608  names from our own list

    def publish(number: int) -> int:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(into, [tuple(row[name] for name in ROW) for row in step(number).to_pylist()])
        connection.execute("COMMIT")
        return now_us()

    return publish


def kafka(target: Mapping[str, Any]) -> Publish:
    producer = Producer({**KafkaAccess.of_json(target["kafka"]).client, "acks": "all", "linger.ms": 0})

    def publish(number: int) -> int:
        for row in step(number).to_pylist():
            producer.produce(target["output"], key=row[KEY], value=b'{"ended_at":0}')
        producer.flush()
        return now_us()

    return publish


WRITERS: Mapping[str, Callable[[Mapping[str, Any]], Publish]] = {
    "files-jsonl": partial(files, "jsonl"), "files-parquet": partial(files, "parquet"), "delta": delta,
    "postgres": postgres, "sqlite": sqlite, "kafka": kafka,
}  # fmt: skip


def write(sink: str, target: Mapping[str, Any], pipe: Any) -> None:
    """Runs in the writing process: makes all steps visible and sends their times."""
    publish, chance = WRITERS[sink](target), random.Random(1)
    visible_us = []
    for number in range(STEPS):
        time.sleep(chance.uniform(*PAUSE_S))
        visible_us.append(publish(number))
    pipe.send(visible_us)


def never_rest() -> None:
    while True:
        pass


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Runs `count` processes that never rest."""
    processes = [multiprocessing.get_context("spawn").Process(target=never_rest) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def followed(sink: str, target: Mapping[str, Any], folder: Path, done: Callable[[], bool]) -> Path:
    """Follows a sink with the observer's loop until `done`; returns the stream that it wrote."""
    path = folder / "observed.arrow"
    path.unlink(missing_ok=True)
    with (
        closing(suite_sinks()[sink].read(target)) as reader,
        LineWriter(folder / "status.jsonl") as lines,
        StreamWriter(path, OBSERVED) as writer,
    ):
        follow(reader, writer, lines, done)
    return path


def idle_share(sink: str, target: Mapping[str, Any], folder: Path) -> tuple[float, float]:
    """The shares of a core that following an idle sink takes: own process, PostgreSQL session."""
    begins_at = time.monotonic() + READ_S
    samples: list[tuple[float, float]] = []

    def done() -> bool:
        over_s = time.monotonic() - begins_at
        if over_s >= (IDLE_S if samples else 0.0):
            samples.append((time.process_time(), _served_s() if sink == "postgres" else 0.0))
        return over_s >= IDLE_S

    followed(sink, target, folder, done)
    (own_s, served_s), (own_until_s, served_until_s) = samples
    return (own_until_s - own_s) / IDLE_S, (served_until_s - served_s) / IDLE_S


def _served_s() -> float:
    with connect("visibility-delay") as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'oncebench.reader.%'"
        ).fetchone()
    return 0.0 if found is None else int(Path(f"/proc/{found[0]}/schedstat").read_text().split()[0]) / 1e9


def measure(sink: str, target: Mapping[str, Any], folder: Path) -> str:
    """Measures a sink and returns its line."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=write, args=(sink, target, theirs))
    process.start()
    began_s = time.process_time()
    visible_us: list[int] = []

    def done() -> bool:
        if not visible_us and ours.poll():
            visible_us.extend(ours.recv())
        if not visible_us and not process.is_alive():
            raise SystemExit(f"{sink}: the writing process has failed; its error is above")
        return bool(visible_us)

    path = followed(sink, target, folder, done)
    cpu_s = time.process_time() - began_s
    process.join()
    first: dict[int, int] = {}
    for row in read_stream(path, OBSERVED).table.select(["key", "seen_us"]).to_pylist():
        first.setdefault(int(row["key"]), row["seen_us"])
    delay_ms = np.array([first[number] - visible_us[number] for number in range(WARM_UP, STEPS)]) / 1e3
    p50, p99 = np.percentile(delay_ms, (50, 99))
    idle, served = idle_share(sink, target, folder)
    server = f", its server's session {served:.1%}" if served else ""
    return (
        f"{sink:14} mean {delay_ms.mean():6.2f} p50 {p50:6.2f} p99 {p99:6.2f} ms; "
        f"CPU {cpu_s * 1e3 / STEPS:.2f} ms a step; idle {idle:.1%} of a core{server}"
    )


def main(others: int, sinks: tuple[str, ...]) -> None:
    """Prints a line per sink."""
    with tempfile.TemporaryDirectory(prefix="visibility-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        folder.chmod(0o755)
        stack.enter_context(open_services({"postgres"} & set(sinks), folder))
        place = Place("visibility", folder, 2, KafkaAccess(""), str, SCHEMA, KEY)
        if "kafka" in sinks:
            broker, _ = stack.enter_context(own_kafka(folder, find_java()))
            place = replace(
                place,
                kafka=broker.access,
                make_topic=lambda name: broker.create_topic(name, 2),
            )
        stack.enter_context(busy(others))
        for sink in sinks:
            sink_folder = folder / f"{sink}-own"
            sink_folder.mkdir()
            print(
                measure(sink, suite_sinks()[sink].provide(replace(place, folder=sink_folder)), sink_folder), flush=True
            )


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:2] if word.isdecimal()]
    main(numbers[0] if numbers else 0, tuple(sys.argv[2 if numbers else 1 :]) or ALL)
