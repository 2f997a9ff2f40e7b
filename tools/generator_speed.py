"""Compares the load generator with `kafka-producer-perf-test`, each in one process.

    python -m tools.generator_speed [PAIRS [RATE]]

Takes about four minutes with 7 pairs on two cores. Starts a broker of its own on loopback.

First both programs send EVENTS records flat out, in alternating pairs, every second pair in reverse order. Both are
idempotent with acks=all, and have the same linger, batch size and compression (SETTINGS). Records have the same size.
Kafka's perf test sends no keys, so its value is as long as a key and a value of the generator together, on average.

Each program prints its own figure: acknowledged records per second, from the first send to the last acknowledgement. A
first pair warms up the broker and does not count. The tool prints medians. It also prints the median of the ratios
within a pair, with its 95 % interval.

Then the generator sends RATE events/s (default: 100,000) for LATENESS_S seconds in each of three runs. The tool prints
the lateness of each run.

Limit: client and broker share the processors.
"""

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click
import numpy as np

from loadgen.pacing import parse_shape
from loadgen.schedule import schedule
from loadgen.session import EVENTS_PER_SESSION, encode
from oncebench.downloads.java import Java, find_java
from oncebench.downloads.maven import jars
from oncebench.errors import UserError
from oncebench.home import HOME
from oncebench.lab.lab import own_kafka
from oncebench.processes import child as process
from oncebench.program import run_program
from oncebench.report.comparisons.paired import median_interval
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.kafka.process import command

EVENTS = 3_000_000  # ten seconds and more: the JVM has compiled the perf test after two
PARTITIONS = 2
PAIRS = 7
RATE, LATENESS_S, LATENESS_RUNS = 100_000, 20, 3
LOWEST_RATE = -(-EVENTS_PER_SESSION // LATENESS_S)  # one session
WAIT_S = 60.0
STARTED_US = 1_790_000_000_000_000  # a start time with as many digits as a real one
# As the generator's own; the last two are librdkafka's defaults. Java's client has the same names.
SETTINGS = {"linger.ms": 5, "batch.size": 1_000_000, "compression.type": "none"}
# The heap that the perf test's own script sets.
HEAP = "-Xmx512M"
# A topic holds 0.4 GB after a run. By default Kafka keeps a deleted topic's files for a minute.
QUICK_DELETE = {"file.delete.delay.ms": "1000"}


def record_bytes() -> int:
    """Returns the mean size of a key and its value in the generator's events."""
    sessions = 1_000
    block = next(schedule(1, sessions, parse_shape("constant", "max", sessions * EVENTS_PER_SESSION)))
    keys, values = encode(1, block.session, block.seq, block.due_us + STARTED_US)
    return round(float(np.mean([len(key) + len(value) for key, value in zip(keys, values, strict=True)])))


def generated(kafka: KafkaBroker, topic: str, folder: Path, rate: float | str, events: int) -> dict[str, float]:
    """Runs the generator as a process; returns acknowledged events per second, and the lateness."""
    status = folder / f"{topic}.jsonl"
    config = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "topic": topic,
        "rate": rate,
        "sessions": events // EVENTS_PER_SESSION,
        "ledger_dir": str(folder / topic),
        "status_path": str(status),
        "client": SETTINGS,
    }
    path = folder / f"{topic}.json"
    path.write_text(json.dumps(config))
    run("the generator", [sys.executable, "-m", "loadgen", str(path)], folder / f"{topic}.log")
    summary = json.loads(status.read_text().splitlines()[-1])["summary"]
    if summary["acknowledged"] != summary["planned"]:  # its rate would be that of another load
        raise UserError(
            f"Kafka acknowledged {summary['acknowledged']:,} of {summary['planned']:,} events. Run the command again "
            "on a machine without other work, or give a lower RATE"
        )
    return {"events_per_s": summary["events_per_s"], **summary["lateness_ms"]}


def perf_test(kafka: KafkaBroker, topic: str, folder: Path, java: Java, size: int) -> float:
    """Runs Kafka's perf test; returns acknowledged records per second."""
    properties = [f"{name}={value}" for name, value in SETTINGS.items()]
    properties += [f"bootstrap.servers={kafka.bootstrap_servers}", "acks=all", "enable.idempotence=true"]
    arguments = ["--topic", topic, "--num-records", str(EVENTS), "--record-size", str(size), "--throughput", "-1",
                 "--producer-props", *properties]  # fmt: skip
    line = command(java, folder, [HEAP], "org.apache.kafka.tools.ProducerPerformance", *arguments)
    at = line.index("-cp") + 1
    line[at] = ":".join([line[at], *map(str, jars("kafka-tools"))])
    text = run("Kafka's perf test", line, folder / f"{topic}.log")
    found = re.findall(rf"^{EVENTS} records sent, ([\d.]+) records/sec", text, re.MULTILINE)
    if not found:  # the lines before the last one have the rate of a part
        raise UserError(f"Kafka's perf test printed no rate of all {EVENTS:,} records:\n{text}")
    return float(found[-1])


def run(name: str, command: Sequence[str | Path], log: Path) -> str:
    """Runs a command to its end; returns its output.

    Raises:
        UserError: it failed.
    """
    with process.start(name, command, log, cwd=HOME) as child:
        while not child.wait(WAIT_S):
            pass
    if child.returncode != 0:
        raise UserError(f"{name} ended with exit code {child.returncode}:\n{process.tail(log)}")
    return log.read_text("utf-8", errors="replace")


def delete(kafka: KafkaBroker, topic: str) -> None:
    """Deletes a topic."""
    admin = kafka.admin()  # it must exist until the answer arrives
    admin.delete_topics([topic])[topic].result(30)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("pairs", type=click.IntRange(1), default=PAIRS)
@click.argument("rate", type=click.IntRange(LOWEST_RATE), default=RATE)
def main(pairs: int, rate: int) -> None:
    """Compare the load generator with kafka-producer-perf-test, in PAIRS pairs.

    Then show the generator's lateness at RATE events/s.
    """
    java, size = find_java(), record_bytes()
    with tempfile.TemporaryDirectory(prefix="generator-speed-") as name, own_kafka(Path(name), java) as (kafka, _):
        folder = Path(name)
        arms = {
            "generator": lambda topic: generated(kafka, topic, folder, "max", EVENTS)["events_per_s"],
            "perf test": lambda topic: perf_test(kafka, topic, folder, java, size),
        }
        found: dict[str, list[float]] = {arm: [] for arm in arms}
        for pair in range(-1, pairs):  # the first pair does not count: it warms up the broker
            for arm in list(arms)[:: -1 if pair % 2 else 1]:
                topic = kafka.fresh_topic("speed", PARTITIONS, QUICK_DELETE)
                rate_found = arms[arm](topic)
                delete(kafka, topic)
                found[arm] += [rate_found] if pair >= 0 else []
                print(f"{pair} {arm}: {rate_found:,.0f} records/s", file=sys.stderr)
        print_ratio(found["generator"], found["perf test"], size)
        print(f"\n| lateness at {rate:,} events/s, ms | p50 | p99 | max |\n| --- | ---: | ---: | ---: |")
        for number in range(LATENESS_RUNS):
            topic = kafka.fresh_topic("speed", PARTITIONS, QUICK_DELETE)
            late = generated(kafka, topic, folder, rate, rate * LATENESS_S)
            delete(kafka, topic)
            print(f"| run {number + 1} | {late['p50']:.2f} | {late['p99']:.2f} | {late['max']:.2f} |", flush=True)


def print_ratio(mine: Sequence[float], theirs: Sequence[float], size: int) -> None:
    """Prints the medians, and the ratio within a pair."""
    ratio = median_interval([one / other for one, other in zip(mine, theirs, strict=True)])
    print(f"records of {size} bytes per second, medians of {len(mine)} pairs\n")
    print(f"| generator | perf test | ratio (95 %) |\n| ---: | ---: | ---: |\n| {median(mine):,.0f} | "
          f"{median(theirs):,.0f} | {ratio.median:.2f} {ratio.interval('.2f')} |")  # fmt: skip


if __name__ == "__main__":
    run_program("tools.generator_speed", main)
