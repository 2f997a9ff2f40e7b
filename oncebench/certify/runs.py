"""Runs the scenarios of a certificate, one after the other, in one lab.

Promise: each scenario is a run of its own, with an empty output. The healthy run comes first. When every guarantee is
broken, the answer cannot change, and the other scenarios are not run.

Failures: a mistake of the user ends the certificate (`UserMistake`), and so does Ctrl-C. A run that fails otherwise
has no answer.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from oncebench.certify.evidence import command
from oncebench.certify.kept import NONE, Outcome, strongest
from oncebench.certify.price import Price, cells, prices
from oncebench.certify.scenarios import AT_OWN_POINT, HEALTHY, Scenario, cell_of, chosen, of_own_points
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.series import open_series
from oncebench.record.json_lines import read_lines
from oncebench.report.measures.metrics import why_no_speed
from oncebench.report.results import Results
from oncebench.report.schema import Report
from oncebench.run.interrupt import nothing_to_report
from oncebench.sinks.black_box.reader import Functions, Unreadable
from oncebench.sinks.black_box.target import UserMistake
from oncebench.sinks.reader import NotAnsweredError
from pipeline.rows import SCHEMA


def check(given: Mapping[str, Any]) -> None:
    """Loads the user's functions in a process of their own.

    Raises:
        UserMistake: one cannot be loaded or called.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        output.mkdir()
        target = {**given, "run": "check", "folder": str(output), "kafka": "", "columns": SCHEMA.names}
        with closing(Functions(target)) as functions:
            try:
                functions.call("check")
            except NotAnsweredError as error:
                raise UserMistake(f"{given['write']} and {given['read']} cannot be loaded: {error}.") from None


def run_all(
    given: Mapping[str, Any],
    only: Sequence[str],
    seed: int,
    results: Results,
    place: Path,
    keep: bool,
    start_timeout_s: float,
) -> Iterator[Outcome]:
    """Runs the scenarios and yields each outcome.

    Args:
        given: the user's functions.
        only: names of scenarios; empty: all.
        place: the work dir.

    Raises:
        UserError: Ctrl-C came before the last scenario ended, or there is no scenario of a name.
        UserMistake: see `oncebench.sinks.black_box`.
    """
    black_box = json.dumps(dict(given), sort_keys=True)
    function = bool(given["write"])
    possible = chosen(function)
    planned = [each for each in possible if not only or each.name in only]
    own = [name for name in only if name not in {each.name for each in possible}]
    _refuse_unknown([name for name in own if not (function and name.startswith(AT_OWN_POINT))], possible)
    if own and HEALTHY not in planned:  # a healthy run shows the names of the sink's own failpoints
        planned.insert(0, HEALTHY)
    expected = [cell_of(each, function, black_box, seed) for each in planned]
    with open_series(expected, results, None, place, keep, start_timeout_s) as (run, interrupted):
        number = 0
        outcomes: list[Outcome] = []
        while number < len(planned) and not interrupted.is_set():
            scenario = planned[number]
            number += 1
            try:
                report = run(
                    cell_of(scenario, function, black_box, seed), f"{number}/{len(planned)} {scenario.name}", False
                )
            except (UserError, PipelineError, OSError) as error:
                # A reader that has read a healthy run is no mistake: it cannot read what the fault has left.
                unreadable = isinstance(error, Unreadable) and bool(outcomes)
                if scenario == HEALTHY or not (unreadable or getattr(error, "exit_code", 1) == ExitCode.ERROR):
                    raise
                outcomes.append(Outcome(scenario, failure=str(error)))
                yield outcomes[-1]
                continue
            if report["interrupted"]:
                break
            report["reproduce"] = command(given, scenario, seed)
            outcomes.append(Outcome(scenario, dict(report)))
            yield outcomes[-1]
            if strongest(outcomes) == NONE and not only:
                return
            if scenario != HEALTHY:
                continue
            found = of_own_points(_points(place / "cells" / f"{number:03d}"))
            planned += [each for each in found if not only or each.name in only]
            _refuse_unknown(own, [*possible, *found])
    if len(outcomes) < len(planned):
        raise UserError(
            f"interrupted after {len(outcomes)} of {len(planned)} scenarios, so there is no certificate. The reports "
            f"of these scenarios are in {results.runs}",
            exit_code=ExitCode.INTERRUPTED,
        )


def run_prices(
    given: Mapping[str, Any],
    beside: str,
    seed: int,
    results: Results,
    place: Path,
    keep: bool,
    start_timeout_s: float,
) -> list[Price]:
    """Runs the function and the one beside it in turn, without faults; returns the prices.

    Args:
        given: the user's functions.
        beside: `module:function` of the other function, which the same reader reads.

    Raises:
        UserError, PipelineError, OSError: a run failed, no round has a meaningful speed, or Ctrl-C came.
    """
    black_box, other = (json.dumps({**given, **more}, sort_keys=True) for more in ({}, {"write": beside}))
    rounds = cells(black_box, other, seed)
    pairs: list[tuple[Report, Report]] = []
    with open_series([cell for pair in rounds for cell in pair], results, None, place, keep, start_timeout_s) as opened:
        run, interrupted = opened
        for number, (own_cell, other_cell) in enumerate(rounds, 1):
            own, its = (
                run(cell, f"price {number}/{len(rounds)} {name}", False)
                for cell, name in ((own_cell, given["write"]), (other_cell, beside))
            )
            if interrupted.is_set():
                raise nothing_to_report("last round ended")
            pairs.append((own, its))
    if not (found := prices(pairs)):
        reasons = {why for pair in pairs for report in pair for why in why_no_speed(report)}
        raise UserError(f"no round has a meaningful speed: {'; '.join(sorted(reasons))}")
    return found


def _points(folder: Path) -> list[str]:
    return [str(line["point"]) for line in read_lines(folder / "trace.jsonl").items]


def _refuse_unknown(wanted: Sequence[str], possible: Sequence[Scenario]) -> None:
    unknown = [name for name in wanted if name not in {each.name for each in possible}]
    if unknown:
        names = ", ".join(each.name for each in possible)
        raise UserError(f"--only {unknown[0]}: there is no such scenario; there are: {names}", exit_code=ExitCode.USAGE)
