"""A Kafka user with only the printed rights runs a job.

Without one of the rights, the message names that right. The broker forbids everything that was not granted. Each case
has a user, topics and a sink_id of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.delivery.contract import AT_LEAST_ONCE, EXACTLY_ONCE
from oncebench.kafka_access.acls import Right
from oncebench.lab.lab import Lab
from oncebench.processes.child import Child
from oncebench.servers.kafka.rights import Job
from oncebench.sinks.kafka.sink import SUPPORTS
from pipeline.config import PipelineConfig
from tests.integration.kafka_access.guarded import Guarded, guarded_kafka
from tests.pipelines import WAIT_S, Fixture, every_row, session
from tests.starts import run_until, start_once

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
# The first line of every JVM of Spark in the log. A refusal before it takes 1 to 3 s on idle cores.
SPARK_STARTS = "Using incubator modules"
# Brokers derive Describe from these.
IMPLIED = {"Describe": ("Describe", "Read", "Write")}
VARIANTS = [(support.guarantee, support.variant) for support in SUPPORTS]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_kafka(tmp_path_factory.mktemp("guarded")) as found:
        yield found


@pytest.fixture
def world(guarded: Guarded, lab: Lab, tmp_path: Path) -> Fixture:
    return Fixture(Lab(guarded.broker, lab.java, lab.class_path, lab.jvm_options), tmp_path)


def job_of(world: Fixture, guarantee: str) -> Job:
    return Job(guarantee, world.input, world.output, world.output, world.quarantine)


def config_of(
    world: Fixture, guarded: Guarded, user: str, guarantee: str, variant: str, *faults: str
) -> PipelineConfig:
    access = {"bootstrap_servers": guarded.servers, "kafka": guarded.settings(user)}
    return world.config(guarantee, variant, *faults, **access)


def printed(*words: str) -> str:
    result = CliRunner().invoke(cli, ["acls", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def needed(guarantee: str) -> list[Right]:
    return [right for right in Job(guarantee, "IN", "OUT", "ID", "BAD").rights() if not right.without]


def named(said: str, right: Right) -> None:
    """The text has a command that grants the right."""
    commands = re.findall(r"kafka-acls\.sh [^,)\n]*", said)
    granted = IMPLIED.get(right.operation, (right.operation,))
    found = [line for line in commands if any(f"--operation {each} " in line for each in granted)
             and re.search(rf"--{right.on.kind} {re.escape(right.on.name)}(?: |$|\.$)", line)]  # fmt: skip
    assert found, f"nothing grants {right.operation} on {right.on} in:\n{said}"


@pytest.mark.parametrize(("guarantee", "variant"), VARIANTS)
def test_a_user_with_only_the_printed_rights_runs_the_job(
    guarded: Guarded, world: Fixture, guarantee: str, variant: str
) -> None:
    user = guarded.new_user()
    names = ("--input", world.input, "--output", world.output, "--sink-id", world.output)
    guarded.run(
        printed("--principal", f"User:{user}", "--guarantee", guarantee, *names, "--quarantine", world.quarantine)
    )
    world.send([*session("a"), *session("bb"), (b"k", b"not JSON")])
    killed = ("after-decision@batch=0",) if variant == "two-phase" else ()
    config = config_of(world, guarded, user, guarantee, variant, *killed)
    if killed:
        with start_once(world, config) as first:
            assert first.wait(WAIT_S)
        assert first.returncode == -9, first.log.read_text()
    with start_once(world, config) as last:
        run_until(world, config, last)
    assert world.visible() == every_row("a", "bb")
    # A replay sends rejected records again: docs/quarantine.md.
    assert set(world.rows(world.quarantine).value) == {b"not JSON"}
    for right in job_of(world, guarantee).rights():
        if right.operation == "DescribeConfigs":
            assert f"grant this user DescribeConfigs on the {right.on.kind}" in last.log.read_text()


CASES = [(*each, right) for each in VARIANTS for right in needed(each[0])]


@pytest.mark.parametrize(
    ("guarantee", "variant", "missing"), CASES, ids=lambda each: each if isinstance(each, str) else
    f"{each.operation}-{each.on.kind}-{each.on.name}",
)  # fmt: skip
def test_a_start_names_the_right_that_is_missing_before_it_starts_spark(
    guarded: Guarded, world: Fixture, guarantee: str, variant: str, missing: Right
) -> None:
    rights = [right for right in job_of(world, guarantee).rights() if not right.without]
    lacks = rights.pop(needed(guarantee).index(missing))
    user = guarded.new_user()
    guarded.grant(user, rights)
    with start_once(world, config_of(world, guarded, user, guarantee, variant)) as started:
        began = time.monotonic()
        assert started.wait(WAIT_S), f"it goes on:\n{started.log.read_text()}"
        print(f"refused after {time.monotonic() - began:.1f} s")
    assert SPARK_STARTS not in started.log.read_text()
    said = last_line(started)
    print(said)
    assert said.startswith("refused to start: ")
    named(said, lacks)


def last_line(started: Child) -> str:
    text = started.log.read_text()
    assert "Traceback" not in text
    return next(line for line in reversed(text.splitlines()) if line.startswith(("refused to start: ", "stopped: ")))


def test_a_job_without_its_group_warns_and_stops_at_once(guarded: Guarded, world: Fixture) -> None:
    rights = job_of(world, AT_LEAST_ONCE).rights()
    (lag,) = (right for right in rights if right.on.kind == "group")
    user = guarded.new_user()
    guarded.grant(user, [right for right in rights if right is not lag])
    world.send(session("a"))
    config = config_of(world, guarded, user, AT_LEAST_ONCE, "acknowledged")
    with start_once(world, config) as started:
        run_until(world, config, started)
    warnings = [line for line in started.log.read_text().splitlines() if "no tool shows the lag of this job" in line]
    assert len(warnings) == 1
    named(warnings[0].replace(f"--group {world.output}. ", f"--group {lag.on.name} "), lag)
    print(warnings[0])


def test_a_job_into_another_sink_needs_its_input_only(guarded: Guarded, world: Fixture) -> None:
    user = guarded.new_user()
    guarded.run(printed("--principal", f"User:{user}", "--input", world.input, "--sink-id", world.output,
                        "--quarantine", world.quarantine))  # fmt: skip
    world.send([*session("a"), (b"k", b"not JSON")])
    folder = world.folder / "rows"
    config = world.config(
        EXACTLY_ONCE, "two-phase", sink="files-jsonl", output={"output": str(folder)},
        bootstrap_servers=guarded.servers, kafka=guarded.settings(user),
    )  # fmt: skip
    with start_once(world, config) as started:
        run_until(world, config, started)
    assert sum(len(file.read_text().splitlines()) for file in folder.glob("part-*")) == 20
    assert len(world.rows(world.quarantine)) == 1
