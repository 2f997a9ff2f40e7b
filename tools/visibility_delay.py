"""How late the observer sees a row: `python -m tools.visibility_delay [BUSY] [SINK ...]`, some 15 s a sink.

A process of its own makes steps of ROWS rows visible at random moments and notes the clock as soon as each is: after
the rename, the COMMIT, the rename of the log entry, the acknowledgement. The observer's own loop follows. Printed per
sink: seen - visible (mean, median, p99, ms), what the looking takes of a core while nothing comes, what the server
takes for it (PostgreSQL), and, with BUSY, all of it beside so many processes that never rest.

What can go wrong: what makes a step visible returns a little after it is, so a delay may come out some tens of
microseconds too small; Kafka's acknowledgement may come after the row was given. Use a machine without other load.
"""

from __future__ import annotations

import json
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
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from psycopg import sql
from pyspark.sql.pandas.types import to_arrow_schema

from oncebench.downloads.java import find_java
from oncebench.lab.lab import own_kafka
from oncebench.observe.observer import follow
from oncebench.record import OBSERVED
from oncebench.record.streams import LineWriter, StreamWriter, read_stream
from oncebench.servers.sink_servers import open_services
from oncebench.sinks.files.formats import LINE, lines_of
from oncebench.sinks.postgres.connection import connect
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.suite import Place
from pipeline.rows import KEY, ROW, SCHEMA

STEPS, ROWS = 150, 100  # 100 rows: five sessions of a batch
WARM_UP = 10  # steps that pay for imports and first files, and do not count
PAUSE_S = (0.04, 0.12)  # between two steps: never in time with whatever looks
READ_S = 2.0  # in which what is there is read, before the looking is measured
IDLE_S = 4.0  # how long an idle sink is followed, for what the looking takes
ALL = ("files-jsonl", "files-parquet", "delta", "postgres", "sqlite", "kafka")
Show = Callable[[int], int]  # makes a step visible, and returns when it was, in epoch µs


def step(number: int) -> pa.RecordBatch:
    """The rows of a step: their key is its number."""
    rows = [{name: str(number) if name == KEY else at for name in ROW} for at in range(ROWS)]
    return pa.RecordBatch.from_pylist(rows, to_arrow_schema(SCHEMA))


def as_lines(rows: pa.RecordBatch) -> pa.Buffer:
    """The rows as JSON lines of a file."""
    texts = [json.dumps(row) for row in rows.to_pylist()]
    return lines_of(pa.RecordBatch.from_pydict({LINE: texts}))


def now_us() -> int:
    return time.time_ns() // 1000


def files(suffix: str, target: Mapping[str, Any]) -> Show:
    folder = Path(target["output"])

    def show(number: int) -> int:
        hidden = folder / f".{number}"
        if suffix == "jsonl":
            hidden.write_bytes(as_lines(step(number)))
        else:
            pq.write_table(pa.Table.from_batches([step(number)]), hidden)
        hidden.rename(folder / f"part-{number}.{suffix}")
        return now_us()

    return show


def delta(target: Mapping[str, Any]) -> Show:
    folder = Path(target["output"])

    def show(number: int) -> int:
        if number == 0:
            deltalake.write_deltalake(str(folder), pa.Table.from_batches([step(0)]))
            return now_us()
        # What delta-rs does after its commit would hold up the clock, so the entry is put there by hand.
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

    return show


def postgres(target: Mapping[str, Any]) -> Show:
    connection = connect("seeing-delay")
    into = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(target["output"]), sql.SQL(", ").join(map(sql.Identifier, ROW))
    )

    def show(number: int) -> int:
        with connection.transaction(), connection.cursor() as cursor, cursor.copy(into) as copy:
            for row in step(number).to_pylist():
                copy.write_row([row[name] for name in ROW])
        return now_us()

    return show


def sqlite(target: Mapping[str, Any]) -> Show:
    connection = sqlite3.connect(target["output"], isolation_level=None)
    into = f"INSERT INTO rows ({', '.join(ROW)}) VALUES ({', '.join('?' for _ in ROW)})"  # noqa: S608  names from our own list

    def show(number: int) -> int:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(into, [tuple(row[name] for name in ROW) for row in step(number).to_pylist()])
        connection.execute("COMMIT")
        return now_us()

    return show


def kafka(target: Mapping[str, Any]) -> Show:
    producer = Producer({**target["kafka"], "acks": "all", "linger.ms": 0})

    def show(number: int) -> int:
        for row in step(number).to_pylist():
            producer.produce(target["output"], key=row[KEY], value=b'{"ended_at":0}')
        producer.flush()
        return now_us()

    return show


WRITERS: Mapping[str, Callable[[Mapping[str, Any]], Show]] = {
    "files-jsonl": partial(files, "jsonl"), "files-parquet": partial(files, "parquet"), "delta": delta,
    "postgres": postgres, "sqlite": sqlite, "kafka": kafka,
}  # fmt: skip


def write(sink: str, target: Mapping[str, Any], told: Any) -> None:
    """The writing process."""
    show, chance = WRITERS[sink](target), random.Random(1)
    shown = []
    for number in range(STEPS):
        time.sleep(chance.uniform(*PAUSE_S))
        shown.append(show(number))
    told.send(shown)


def never_rest() -> None:
    while True:
        pass


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Beside so many processes that never rest."""
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
    """Follows as the observer does until `done`; the stream that it wrote."""
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
    """Shares of a core that following an idle sink takes: of this process, and of PostgreSQL's session for it."""
    begins_at = time.monotonic() + READ_S
    noted: list[tuple[float, float]] = []

    def done() -> bool:
        over_s = time.monotonic() - begins_at
        if over_s >= (IDLE_S if noted else 0.0):
            noted.append((time.process_time(), _served_s() if sink == "postgres" else 0.0))
        return over_s >= IDLE_S

    followed(sink, target, folder, done)
    (own_s, served_s), (own_until_s, served_until_s) = noted
    return (own_until_s - own_s) / IDLE_S, (served_until_s - served_s) / IDLE_S


def _served_s() -> float:
    with connect("seeing-delay") as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'oncebench.reader.%'"
        ).fetchone()
    return 0.0 if found is None else int(Path(f"/proc/{found[0]}/schedstat").read_text().split()[0]) / 1e9


def measure(sink: str, target: Mapping[str, Any], folder: Path) -> str:
    """One line about a sink."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=write, args=(sink, target, theirs))
    process.start()
    began_s = time.process_time()
    shown_us: list[int] = []

    def done() -> bool:
        if not shown_us and ours.poll():
            shown_us.extend(ours.recv())
        if not shown_us and not process.is_alive():
            raise SystemExit(f"{sink}: what writes has failed")
        return bool(shown_us)

    path = followed(sink, target, folder, done)
    cpu_s = time.process_time() - began_s
    process.join()
    first: dict[int, int] = {}
    for row in read_stream(path, OBSERVED).table.select(["key", "seen_us"]).to_pylist():
        first.setdefault(int(row["key"]), row["seen_us"])
    late_ms = np.array([first[number] - shown_us[number] for number in range(WARM_UP, STEPS)]) / 1e3
    idle, served = idle_share(sink, target, folder)
    server = f", its server's session {served:.1%}" if served else ""
    return (
        f"{sink:14} mean {late_ms.mean():6.2f} p50 {np.median(late_ms):6.2f} p99 {np.percentile(late_ms, 99):6.2f} ms; "
        f"CPU {cpu_s * 1e3 / STEPS:.2f} ms a step; idle {idle:.1%} of a core{server}"
    )


def main(others: int, sinks: tuple[str, ...]) -> None:
    """Prints a line per sink."""
    with tempfile.TemporaryDirectory(prefix="seeing-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        folder.chmod(0o755)
        stack.enter_context(open_services({"postgres"} & set(sinks), folder))
        place = Place("seeing", folder, 2, {}, str, SCHEMA, KEY)
        if "kafka" in sinks:
            broker, _ = stack.enter_context(own_kafka(folder, find_java()))
            place = replace(
                place,
                kafka={"bootstrap.servers": broker.bootstrap_servers},
                make_topic=lambda name: broker.create_topic(name, 2),
            )
        stack.enter_context(busy(others))
        for sink in sinks:
            own = folder / f"{sink}-own"
            own.mkdir()
            print(measure(sink, suite_sinks()[sink].provide(replace(place, folder=own)), own), flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:2] if word.isdecimal()]
    main(numbers[0] if numbers else 0, tuple(sys.argv[2 if numbers else 1 :]) or ALL)
