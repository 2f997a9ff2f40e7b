"""Somebody copies a checkpoint folder and starts a second job from the copy."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tests.pipelines import Fixture, every_row, session
from tests.starts import catch_up, refusal, run_until, start_once, wait_for_input

pytestmark = [pytest.mark.integration, pytest.mark.spark]


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
