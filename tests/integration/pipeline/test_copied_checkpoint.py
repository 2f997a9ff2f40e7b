"""Somebody copies a checkpoint folder and starts a second job from the copy."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from oncebench.record.json_lines import read_lines
from tests.pipelines import Fixture, every_row, session
from tests.starts import catch_up, refusal, run_until, start_once, wait_for_input
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.slow  # the contract of each sink starts a copy too
def test_a_job_with_a_copy_is_refused_and_the_other_job_goes_on(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "idempotent")
    fixture.send(session("a-1"))
    catch_up(fixture, config)
    copy = replace(config, checkpoint=fixture.folder / "copy")
    shutil.copytree(config.checkpoint, copy.checkpoint)
    with start_once(fixture, config) as first:
        fixture.send(session("b-1"))
        wait_for_input(fixture, config, first)
        assert "has no batch after 0" in refusal(fixture, copy)
        fixture.send(session("c-1"))
        run_until(fixture, config, first)
    assert fixture.visible() == every_row("a-1", "b-1", "c-1")


@pytest.mark.slow
def test_a_start_that_is_refused_for_its_topics_stops_no_other_job(fixture: Fixture) -> None:
    config = fixture.config("exactly-once", "idempotent")
    fixture.send(session("a-1"))
    catch_up(fixture, config)
    copy = fixture.folder / "copy"
    shutil.copytree(config.checkpoint, copy)  # it lacks no batch, so it could take the output
    record = fixture.folder / "second"
    record.mkdir()
    with start_once(fixture, replace(config, record=record)) as first:
        wait_for(
            "the query", lambda: any(line["kind"] == "running" for line in read_lines(record / "progress.jsonl").items)
        )
        for checkpoint in (config.checkpoint, copy):
            misspelt = replace(config, checkpoint=checkpoint, quarantine_topic=f"{fixture.quarantine}d")
            assert "does not exist" in refusal(fixture, misspelt)
        fixture.send(session("b-1"))
        run_until(fixture, replace(config, record=record), first)
    assert fixture.visible() == every_row("a-1", "b-1")
