"""Runs the scenarios of a certificate one after the other, and the rounds of its price.

Promise: each scenario is a run of its own, with an empty output. The healthy run comes first. When every guarantee is
broken, the answer cannot change, and the remaining scenarios do not run.

Failures: a mistake in the user's functions (`UserMistake`) ends the certificate, and so does Ctrl-C before the last
scenario ended. After any other failure of a run, its scenario has no answer. If the healthy run fails, there is no
certificate.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from oncebench.certify.kept import NONE, Outcome, strongest
from oncebench.certify.price import Price, cells, prices
from oncebench.certify.request import Request
from oncebench.certify.scenarios import AT_OWN_POINT, HEALTHY, Scenario, cell_of, chosen, of_own_points
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, Interrupted, UserError
from oncebench.experiments.series import Run, open_series
from oncebench.experiments.workspace import Workspace
from oncebench.record.json_lines import read_lines
from oncebench.report.measures.metrics import why_no_speed
from oncebench.report.results import Results
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.sinks.black_box.reader import Functions, Unreadable
from pipeline.rows import SCHEMA


@dataclass(frozen=True)
class RunSettings:
    """The sink under test, and where and how its runs take place.

    Attributes:
        request: the sink and the seed.
        results: gets the report of each run.
        workspace: where the runs take place. A call of the user's reader or set-up may take as long as a start.
    """

    request: Request
    results: Results
    workspace: Workspace

    @property
    def function(self) -> bool:
        """Whether the sink is a function; else it is a streaming sink of Spark."""
        return bool(self.request.given["write"])

    def black_box(self, **other: str) -> str:
        """Returns the user's functions as `Cell.black_box`, with these fields replaced."""
        return json.dumps({**self.request.given, **other}, sort_keys=True)

    def cell(self, scenario: Scenario) -> Cell:
        """Returns the run of a scenario."""
        return cell_of(scenario, self.function, self.black_box(), self.request.seed)

    def open(self, expected: Sequence[Cell]) -> AbstractContextManager[tuple[Run, Event]]:
        """Opens the series of these runs, see `open_series`."""
        return open_series(expected, self.results, self.workspace)


def check(given: Mapping[str, Any], start_timeout_s: float) -> None:
    """Loads the user's functions in a process of their own, each within `start_timeout_s`.

    Raises:
        UserMistake: a function cannot be loaded or called.
        TooSlow: a function was not loaded in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        output.mkdir()
        target = {**given, "run": "check", "folder": str(output), "kafka": "", "columns": SCHEMA.names,
                  "limit_s": start_timeout_s}  # fmt: skip
        with closing(Functions(target)) as functions:
            functions.check()


def run_all(settings: RunSettings, only: Sequence[str]) -> Iterator[Outcome]:
    """Runs the scenarios and yields each outcome.

    Args:
        only: names of scenarios; empty: all.

    Raises:
        UserError: Ctrl-C came before the last scenario ended, or `only` has an unknown name.
        UserMistake: a function cannot be used, or the reader returned rows before a run wrote any.
    """
    planned = _planned(settings, only)
    outcomes: list[Outcome] = []
    with settings.open([settings.cell(each) for each in planned]) as (run, interrupted):
        while len(outcomes) < len(planned) and not interrupted.is_set():
            scenario, number = planned[len(outcomes)], len(outcomes) + 1
            outcome = _run_scenario(settings, scenario, run, f"{number}/{len(planned)}", bool(outcomes))
            if outcome is None:
                break
            outcomes.append(outcome)
            yield outcome
            if strongest(outcomes) == NONE and not only:
                return
            if scenario == HEALTHY:
                planned += _of_own_points(settings, only, number)
    if len(outcomes) < len(planned):
        raise Interrupted(
            f"interrupted after {len(outcomes)} of {len(planned)} scenarios, so there is no certificate. The reports "
            f"of the finished runs are in {settings.results.runs}"
        )


def _planned(settings: RunSettings, only: Sequence[str]) -> list[Scenario]:
    """Returns the scenarios to run, as far as they are known before the healthy run."""
    possible = chosen(settings.function)
    planned = [each for each in possible if not only or each.name in only]
    own = _unknown(only, possible)
    _refuse([name for name in own if not (settings.function and name.startswith(AT_OWN_POINT))], possible)
    # Only a healthy run shows the names of the sink's own failpoints.
    return [HEALTHY, *planned] if own and HEALTHY not in planned else planned


def _of_own_points(settings: RunSettings, only: Sequence[str], number: int) -> list[Scenario]:
    """Returns the scenarios of the sink's own failpoints.

    The healthy run with this number has passed these failpoints.
    """
    trace = read_lines(settings.workspace.folder / "cells" / f"{number:03d}" / "trace.jsonl").items
    found = of_own_points((str(line["point"]), int(line["batch"])) for line in trace)
    possible = [*chosen(settings.function), *found]
    _refuse(_unknown(only, possible), possible)
    return [each for each in found if not only or each.name in only]


def _run_scenario(
    settings: RunSettings, scenario: Scenario, run: Run, progress: str, read_before: bool
) -> Outcome | None:
    """Runs one scenario; returns None if Ctrl-C interrupted the run.

    Args:
        progress: the number of the scenario and of all scenarios.
        read_before: whether an earlier scenario has an outcome, so the user's reader works.
    """
    try:
        report = run(settings.cell(scenario), f"{progress} {scenario.name}", False)
    except (UserError, PipelineError, OSError) as error:
        # A reader that worked before has no mistake: it cannot read the output that the fault has left.
        unreadable = isinstance(error, Unreadable) and read_before
        if scenario == HEALTHY or not (unreadable or getattr(error, "exit_code", 1) == ExitCode.ERROR):
            raise
        return Outcome(scenario, failure=str(error))
    if report["interrupted"]:
        return None
    report["reproduce"] = settings.request.command(scenario)
    return Outcome(scenario, dict(report))


def run_prices(settings: RunSettings) -> list[Price]:
    """Runs the function and `Request.beside` in turn, without faults; returns the prices.

    Every second round runs backwards.

    Raises:
        UserError, PipelineError, OSError: a run failed, no round has a usable speed, or Ctrl-C came.
    """
    beside = settings.request.beside
    rounds = cells(settings.black_box(), settings.black_box(write=beside), settings.request.seed)
    names = (settings.request.given["write"], beside)
    pairs: list[tuple[Report, Report]] = []
    with settings.open([cell for pair in rounds for cell in pair]) as (run, interrupted):
        for number, pair in enumerate(rounds, 1):
            order = (0, 1) if number % 2 else (1, 0)  # a machine that becomes slower must not always affect the second
            made = {each: run(pair[each], f"price {number}/{len(rounds)} {names[each]}", False) for each in order}
            if interrupted.is_set():
                raise Interrupted(f"interrupted in round {number} of {len(rounds)}")
            pairs.append((made[0], made[1]))
    if not (found := prices(pairs)):
        reasons = {why for pair in pairs for report in pair for why in why_no_speed(report)}
        raise UserError(f"each round has a run without a usable speed: {'; '.join(sorted(reasons))}")
    return found


def _unknown(only: Sequence[str], possible: Sequence[Scenario]) -> list[str]:
    names = {each.name for each in possible}
    return [name for name in only if name not in names]


def _refuse(unknown: Sequence[str], possible: Sequence[Scenario]) -> None:
    if unknown:
        names = ", ".join(each.name for each in possible)
        raise UserError(
            f"--only {unknown[0]}: there is no such scenario. The scenarios are {names}", exit_code=ExitCode.USAGE
        )
