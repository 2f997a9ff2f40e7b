"""Kills the documented jobs again and again, and counts their output.

The tool installs the wheel outside the checkout first.

    python -m tools.long_runs.wheel_kills [--kills 50] [--sink kafka postgres both-queries] [--seed 28]
        [--pyspark 4.2.0] [--guarantee exactly-once]

Takes about 30 s per kill and job on two busy cores, and a minute for the installation. The jobs come from
`docs/your_own_job.md` and `examples/`; only their address of Kafka is replaced. A kill ends the job's Python, JVM and
workers with SIGKILL. The seed decides its moment: one of five comes while the job starts, the others after its first
committed batch. Orders are sent all the time. `plain_count.py`, which has no code of the project, counts the output.

`--guarantee at-least-once` is the control: the same jobs and kills must then duplicate orders, and lose none. If the
tool found no duplicate there, its result under exactly-once would prove nothing.

Exit code: 0 if every order is in each output once, 1 otherwise or if a job ended by itself, 130 after Ctrl-C or
SIGTERM. For the control, 0 means that orders are duplicated in each output, and none is lost. All files are in a
temporary folder of 1 GB; the first line has its path. A run that fails keeps the folder for its logs. After any other
end, the tool removes it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psycopg
from confluent_kafka import KafkaError, Message, Producer

from oncebench.downloads.java import find_java
from oncebench.errors import ExitCode
from oncebench.live.streams import outlive_readers
from oncebench.processes import child
from oncebench.processes.child import Child, tail
from oncebench.servers.kafka.broker import start_kafka
from oncebench.servers.kafka.topics import Kafka
from oncebench.servers.postgres import start_postgres
from oncebench.sinks.postgres.connection import VARIABLE
from tools.long_runs.clean_install import ROOT, clean, install
from tools.long_runs.plain_count import DUPLICATED

PAGE = ROOT / "docs" / "your_own_job.md"
TWO_QUERIES = ROOT / "examples" / "orders_to_kafka_and_postgres.py"
COUNT = Path(__file__).with_name("plain_count.py")
INPUT, TOPIC, TABLE, PARTITIONS = "orders", "orders-checked", "orders", 2  # the names in the documented jobs
OUTPUTS = {"kafka": ("kafka",), "postgres": ("postgres",), "both-queries": ("kafka", "postgres")}
SPARK = "4.2.0"  # whose connector the documented jobs name
RATE = 100  # orders per second
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
STARTING_S = (0.5, 8.0)  # after the job's start; the first batch of a start is committed after 8 to 12 s on two cores
RUNNING_S = (0.2, 4.0)  # after the first committed batch of a start; a batch begins every second
EVERY = 5  # one of so many kills comes while the job starts
WAIT_S = 300.0  # for a batch, or for all rows; a start of Spark took minutes on a busy machine
POLL_S = 0.05


class Load(threading.Thread):
    """Sends numbered orders at a steady rate until it is stopped.

    It keeps the orders that Kafka acknowledged.
    """

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.sent: list[str] = []
        self._refused: list[str] = []
        self._stopped = threading.Event()
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20})

    def run(self) -> None:
        begun, number = time.monotonic(), 0
        while not self._stopped.wait(POLL_S):
            while number < (time.monotonic() - begun) * RATE:
                order = {"order_id": f"o-{number}", "cents": number}
                self._producer.produce(INPUT, json.dumps(order), order["order_id"], on_delivery=self._acknowledged)
                number += 1
            self._producer.poll(0)

    def stop(self) -> list[str]:
        """Ends the load, and returns the values of all its records, which are acknowledged."""
        self._stopped.set()
        self.join()
        if (left := self._producer.flush(WAIT_S)) or self._refused:
            raise SystemExit(f"the load is not complete: {left} orders without an answer, refused: {self._refused[:3]}")
        return self.sent

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.sent.append((message.value() or b"").decode())
        else:
            self._refused.append(str(error))


@dataclass
class Job:
    """A documented job in a folder of its own, run by the Python of the clean environment."""

    folder: Path
    python: Path
    environment: Mapping[str, str]
    logs: list[Path] = field(default_factory=list)

    def start(self) -> Child:
        self.logs.append(self.folder / f"job-{len(self.logs) + 1}.log")
        return child.start(
            "the job", [self.python, "job.py"], self.logs[-1], env=dict(self.environment), cwd=self.folder
        )

    def newest(self, log: str) -> dict[str, int]:
        """Returns the newest batch of each query in its offset log or commit log.

        The key is the name of the query's checkpoint.
        """
        found: dict[str, int] = {}
        for path in self.folder.glob(f"state/*/{log}/*"):
            if path.name.isdigit():
                name = path.parts[-3]
                found[name] = max(int(path.name), found.get(name, -1))
        return found

    def open(self) -> dict[str, int]:
        """Batches that were planned and are not committed."""
        committed = self.newest("commits")
        return {name: batch for name, batch in self.newest("offsets").items() if batch > committed.get(name, -1)}

    def wait_for(self, what: str, done: Callable[[], bool], job: Child) -> None:
        """Waits for a condition. Ends the tool if the job ends first, or after WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        while not done():
            if not job.alive:
                job.kill_session()
                how = f"ended by itself with exit code {job.returncode}"
                raise SystemExit(f"the job {how} before {what}; see {job.log}\n{tail(job.log)}")
            if time.monotonic() > deadline:
                raise SystemExit(f"waited {WAIT_S:g} s for {what}; see {job.log}\n{tail(job.log)}")
            time.sleep(POLL_S)


def documented_jobs() -> dict[str, str]:
    """Returns the code of each job, as the page and the examples print it."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (job,) = [block for block in blocks if "KafkaSink(" in block and ".start()" in block]
    (lines,) = [block for block in blocks if "PostgresSink(" in block]
    return {"kafka": job, "postgres": exchanged(job, lines), "both-queries": TWO_QUERIES.read_text()}


def exchanged(job: str, lines: str) -> str:
    """Returns a job in which statements replace the lines of the same name.

    The name is that of the variable, or of the imported module.
    """
    code = job.splitlines()
    for statement in ast.parse(lines).body:
        line = ast.get_source_segment(lines, statement) or ""
        name = re.match(r"from \S+ import|\w+ =|", line)
        places = [number for number, each in enumerate(code) if name and name[0] and each.startswith(name[0])]
        if len(places) != 1:
            raise SystemExit(f"{PAGE.name}: this line replaces {len(places)} lines of the job, not one: {line}")
        code[places[0]] = line
    return "".join(f"{line}\n" for line in code)


def planned(seed: int, kills: int) -> list[tuple[bool, float]]:
    """Returns for each kill whether it comes during the start, and the seconds until it comes."""
    moments = random.Random(seed)
    starting = [number % EVERY == EVERY - 1 for number in range(kills)]
    return [(each, moments.uniform(*(STARTING_S if each else RUNNING_S))) for each in starting]


def kill(job: Job, starting: bool, after_s: float) -> tuple[dict[str, int], dict[str, int]]:
    """Starts and kills the job once.

    Returns the batches that the job committed, and those that it left open.
    """
    before = job.newest("commits")
    with job.start() as running:
        if not starting:
            job.wait_for("a committed batch", lambda: job.newest("commits") != before, running)
        due = time.monotonic() + after_s
        job.wait_for("its kill", lambda: time.monotonic() >= due, running)
        running.kill_session()
    return {name: batch - before.get(name, -1) for name, batch in job.newest("commits").items()}, job.open()


def counts(sent: Path, places: Sequence[Sequence[str]], dsn: str) -> tuple[list[int], str]:
    """Runs the counting program on each place; returns its exit codes and its lines."""
    done = [
        subprocess.run([sys.executable, "-I", COUNT, sent, *place], env={**clean(), "DSN": dsn},
                       capture_output=True, text=True, check=False)
        for place in places
    ]  # fmt: skip
    return [each.returncode for each in done], "".join(each.stdout + each.stderr for each in done)


def finished(code: int) -> bool:
    """Whether an output has every order, once or more often."""
    return code in (0, DUPLICATED)


def run(name: str, job: Job, kafka: Kafka, dsn: str, plan: Sequence[tuple[bool, float]], expected: int) -> bool:
    """Kills one job by the plan, lets it finish, and prints the counts.

    Returns:
        Whether the input has each order once, and the count of each output ends with the exit code `expected`.
    """
    for topic in (INPUT, TOPIC):
        kafka.create_topic(topic, PARTITIONS)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {TABLE} (order_id text, cents bigint)")
    load, opened = Load(kafka.bootstrap_servers), 0
    load.start()
    for number, (starting, after_s) in enumerate(plan, 1):
        committed, left_open = kill(job, starting, after_s)
        opened += bool(left_open)
        when = f"{after_s:.2f} s after " + ("its start" if starting else "its first committed batch")
        print(f"{name}: kill {number} of {len(plan)}, {when}: committed {committed}, open {left_open}", flush=True)
    sent = job.folder / "sent"
    sent.write_text("".join(f"{value}\n" for value in load.stop()))
    outputs = {"kafka": ("kafka", kafka.bootstrap_servers, TOPIC), "postgres": ("postgres", TABLE)}
    places = [outputs[output] for output in OUTPUTS[name]]
    with job.start() as running:
        try:
            job.wait_for("every order in its output", lambda: all(map(finished, counts(sent, places, dsn)[0])), running)
            job.wait_for("the last commit", lambda: not job.open(), running)
        except SystemExit as error:
            print(error)
        running.kill_session()
    codes, lines = counts(sent, [("kafka", kafka.bootstrap_servers, INPUT), *places], dsn)
    print(f"{name}: {len(plan)} kills, {opened} of them while a batch was open\n{lines}", end="", flush=True)
    return codes == [0] + [expected] * len(places)


def kill_jobs(
    folder: Path, python: Path, names: Sequence[str], plan: Sequence[tuple[bool, float]], spark: str, guarantee: str
) -> bool:
    """Kills each job by the plan, on servers of its own below `folder`.

    Returns whether all counts are as promised.
    """
    java, kept, jobs = find_java(), [], documented_jobs()
    expected = DUPLICATED if guarantee == AT_LEAST_ONCE else 0
    for name in names:
        place = folder / name
        place.mkdir()
        with start_kafka(place / "servers", java) as kafka, start_postgres(place / "servers") as postgres:
            path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
            own = {"PATH": path, "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1", VARIABLE: postgres.dsn}
            job = Job(place, python, {**clean(), **own})
            address = jobs[name].replace("broker1:9092", kafka.bootstrap_servers)
            code = address.replace(f":{SPARK}", f":{spark}").replace(f'"{EXACTLY_ONCE}"', f'"{guarantee}"')
            (place / "job.py").write_text(code)
            kept.append(run(name, job, kafka, postgres.dsn, plan, expected))
    return all(kept)


@contextmanager
def own_folder() -> Iterator[Path]:
    """Makes a temporary folder, and removes it after Ctrl-C or SIGTERM.

    Both end the block with KeyboardInterrupt. The exception passes the inner `with` blocks first, which end the
    children that they have started.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        print("stopping ...", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    folder = Path(tempfile.mkdtemp(prefix="wheel-kills-"))
    try:
        yield folder
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Installs, kills and counts; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.long_runs.wheel_kills")
    parser.add_argument("--kills", type=int, default=50, help="Kills per job.")
    parser.add_argument("--sink", nargs="+", default=list(OUTPUTS), choices=OUTPUTS, help="Jobs; all by default.")
    parser.add_argument("--seed", type=int, default=28, help="Seed of the moments of the kills.")
    parser.add_argument("--pyspark", default=SPARK, help="Version of PySpark and of its Kafka connector.")
    parser.add_argument(
        "--guarantee", default=EXACTLY_ONCE, choices=(EXACTLY_ONCE, AT_LEAST_ONCE), help="at-least-once is the control."
    )
    options = parser.parse_args(arguments)
    plan = planned(options.seed, options.kills)
    try:
        with own_folder() as folder:
            print(f"folder {folder}, seed {options.seed}", flush=True)
            python = install(folder, f"pyspark=={options.pyspark}")
            if not kill_jobs(folder, python, options.sink, plan, options.pyspark, options.guarantee):
                return 1
            shutil.rmtree(folder)  # a run that fails keeps its logs
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return 0


if __name__ == "__main__":
    outlive_readers()
    sys.exit(main())
