"""Runs the batches of `oncebench batches` in a process of their own.

It writes the plan and the configuration of each arm, and sends the events if the batches need them.

Promise: `batches.jsonl` in the folder has a line for each finished batch, also after an interruption.
Failures: the process stopped with an error, or takes too long (`UserError`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from oncebench.delivery.contract import Support
from oncebench.delivery.errors import STOPPED
from oncebench.errors import UserError
from oncebench.experiments.batch_input import send_input
from oncebench.experiments.batches import WARM_ROUNDS
from oncebench.experiments.whole_batches import batches_of
from oncebench.home import HOME
from oncebench.kafka_access.forms import described
from oncebench.lab.lab import Lab
from oncebench.processes import child as process
from oncebench.record.json_lines import AllLines
from oncebench.servers.sink_servers import services
from oncebench.sinks.registry import SINKS, suite_sinks
from oncebench.sinks.suite import Place
from pipeline.config import PipelineConfig, write_config
from pipeline.rows import KEY, SCHEMA

POLL_S = 0.2
BATCHES_PER_LINE = 50  # a line of progress after so many batches
# Time limits: Spark's start, and ten times a batch of a table format (the slowest: it writes a log entry per batch).
# Events of the whole pipeline take ten times as long as at 50,000 events/s, half of what two cores process.
START_S, BATCH_S, EVENTS_PER_S = 120.0, 10.0, 5000.0


@dataclass(frozen=True)
class Arm:
    """One configuration that is measured: a sink with one guarantee and variant."""

    sink: str
    support: Support

    @property
    def name(self) -> str:
        return f"{self.sink}.{self.support.guarantee}.{self.support.variant}"


@dataclass(frozen=True)
class Plan:
    """The plan of every arm: a number of rounds, and in each a batch of `rows` generated rows.

    With `events`, a batch has this number of events instead, which go through the whole pipeline. `partitions`: tasks
    of a batch. `seed`: seed of the random order of the arms in each round.
    """

    rows: int
    events: int | None
    rounds: int
    partitions: int
    seed: int

    @property
    def size(self) -> dict[str, int]:
        """The size of a batch, with its unit."""
        return {"rows": self.rows} if self.events is None else {"events": self.events}

    def batches(self, arms: int) -> int:
        """All batches of so many arms, with those of the warm-up."""
        return (WARM_ROUNDS + self.rounds) * arms if self.events is None else batches_of(arms, self.rounds)

    def limit_s(self, arms: int) -> float:
        """How long they may take."""
        return START_S + (BATCH_S + (self.events or 0) / EVENTS_PER_S) * self.batches(arms)


def servers_of(lab: Lab) -> dict[str, Any]:
    """The servers of a series, as the environment of a report has them."""
    access = lab.kafka.access
    kafka = {"own": True} if lab.own_kafka else {**access.as_json(), "own": False, **described(access.client)}
    return {"kafka": kafka, "theirs": {services()[name].variable: address for name, address in lab.theirs.items()}}


def run(lab: Lab, folder: Path, arms: Sequence[Arm], plan: Plan, interrupted: Callable[[], bool]) -> None:
    """Runs all rounds, or until `interrupted`."""
    fields: dict[str, Any] = {**plan.size, "rounds": plan.rounds, "seed": plan.seed}
    if plan.events is not None:
        events = plan.batches(len(arms)) * plan.events
        click.echo(f"{time.strftime('%H:%M:%S')}  sending {events:,} events", err=True)
        fields |= {"suite": os.getpid(), "input": send_input(lab, folder, plan.partitions, events, interrupted)}
    (folder / "plan.json").write_text(json.dumps(fields))
    if interrupted():
        return
    for arm in arms:
        _write_arm(arm, arms, lab, folder, plan.partitions)
    _run(lab, folder, plan.batches(len(arms)), plan.limit_s(len(arms)), interrupted)


def _write_arm(arm: Arm, arms: Sequence[Arm], lab: Lab, folder: Path, partitions: int) -> None:
    own = folder / arm.name
    own.mkdir()
    sink_id = f"ob-{time.time_ns():x}"
    kafka = lab.kafka.access
    target: dict[str, Any] = suite_sinks()[arm.sink].provide(
        Place(sink_id, own, partitions, kafka, lambda name: lab.kafka.create_topic(name, partitions), SCHEMA, KEY)
    )
    config = PipelineConfig(
        **kafka.as_json(),
        input_topic=f"{sink_id}.in",
        output=target,
        quarantine_topic=lab.kafka.create_topic(f"{sink_id}.quarantine", partitions),
        sink=arm.sink,
        guarantee=arm.support.guarantee,
        variant=arm.support.variant,
        sink_id=sink_id,
        checkpoint=own / "checkpoint",
        record=own,
        partitions=partitions,
        **lab.spark(SINKS[each.sink] for each in arms),
    )
    write_config(config, folder / f"arm-{arm.name}.json")


def _run(lab: Lab, folder: Path, wanted: int, limit_s: float, interrupted: Callable[[], bool]) -> None:
    command = [sys.executable, "-m", "oncebench.experiments.batches", str(folder)]
    log = folder / "logs" / "batches.log"
    finished = AllLines(folder / "batches.jsonl")
    with process.start("the batches", command, log, cwd=HOME, env=lab.environment()) as child:
        deadline = time.monotonic() + limit_s
        reported = 0
        while child.alive and not interrupted():
            if time.monotonic() > deadline:
                raise UserError(f"the batches took longer than {limit_s:.0f} s. See {log}")
            done = len(finished.read())
            if done >= reported + BATCHES_PER_LINE:
                reported = done
                click.echo(f"{time.strftime('%H:%M:%S')}  {done} of {wanted} batches", err=True)
            time.sleep(POLL_S)
    if not interrupted() and child.returncode != 0:
        raise UserError(f"the batches stopped: {_why(log)}. See {log}")


def _why(log: Path) -> str:
    """The message of the ended process, else its last line."""
    text = log.read_text("utf-8", errors="replace")
    lines = process.messages_in(log) or [line for line in text.splitlines() if line.strip()] or ["no message"]
    return lines[-1].removeprefix(STOPPED).removesuffix(".")
