"""`oncebench transactions` beside a real pipeline that was killed.

The kill is before or after the pipeline's decision.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.processes import child
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.registry import suite_sinks
from pipeline.config import PipelineConfig
from tests.pipelines import WAIT_S, Fixture, every_row, place, session
from tests.reading import read_all
from tests.starts import catch_up, start_once

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]
FAULTS = ("before-decision:kill@batch=0", "after-decision:kill@batch=0")


def command(config: PipelineConfig, *words: str) -> tuple[int, str]:
    servers = ["--bootstrap-servers", config.bootstrap_servers] if config.sink == "kafka" else []
    job = ["--checkpoint", str(config.checkpoint), "--output", config.output["output"], *servers]
    result = CliRunner().invoke(cli, ["transactions", *words, *job])
    return getattr(result.exception, "exit_code", result.exit_code), result.stdout


def decisions(config: PipelineConfig) -> list[str]:
    return [json.loads(line)["decision"] for line in command(config, "list", "--json")[1].splitlines()]


def dies(fixture: Fixture, config: PipelineConfig) -> None:
    with start_once(fixture, config) as started:
        assert started.wait(WAIT_S), child.tail(started.log)
    assert started.returncode == -9, child.tail(started.log)


def end_both(fixture: Fixture, config: PipelineConfig, visible: Callable[[], Counter[tuple[str, int]]]) -> None:
    """Aborts what the first attempt has left, and commits what the second has decided."""
    fixture.send([*session("a-1"), *session("b-22")])
    dies(fixture, config)
    assert set(decisions(config)) == {"undecided"}
    assert command(config, "commit", "--yes")[0] == 2
    assert command(config, "abort", "--yes")[0] == 0
    assert (decisions(config), visible()) == ([], Counter())
    dies(fixture, config)
    assert set(decisions(config)) == {"commit"}
    assert command(config, "abort", "--yes")[0] == 2
    assert command(config, "commit", "--yes")[0] == 0
    assert command(config, "commit", "--yes") == (0, "no open transactions\n")
    assert visible() == every_row("a-1", "b-22")
    fixture.send(session("c-333"))
    catch_up(fixture, config)
    assert visible() == every_row("a-1", "b-22", "c-333")


def test_a_killed_pipeline_into_kafka_loses_and_duplicates_nothing(fixture: Fixture) -> None:
    end_both(fixture, fixture.config("exactly-once", "two-phase", *FAULTS), fixture.visible)


def test_a_killed_pipeline_into_postgres_loses_and_duplicates_nothing(fixture: Fixture, own: PostgresServer) -> None:
    sink = suite_sinks()["postgres"]
    target = sink.provide(place("ended", fixture.folder))

    def visible() -> Counter[tuple[str, int]]:
        values = (json.loads(value or b"{}") for value in read_all(sink.read(target)).value)
        return Counter((row["session_key"], row["j"]) for row in values)

    config = fixture.config("exactly-once", "two-phase", *FAULTS, sink="postgres", output=target, sink_id="ended")
    end_both(fixture, config, visible)
