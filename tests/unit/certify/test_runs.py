"""The series of a certificate: which failures end it.

Other failures leave one scenario without an answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncebench.certify import runs
from oncebench.certify.kept import Outcome
from oncebench.certify.request import Request
from oncebench.certify.runs import RunSettings
from oncebench.certify.scenarios import SCENARIOS
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.workspace import Workspace
from oncebench.report.results import Results
from oncebench.sinks.black_box.names import UserMistake
from oncebench.sinks.black_box.reader import TooSlow, Unreadable

GIVEN = {
    "write": "mine:write", "format": "", "options": {}, "read": "mine:read", "setup": "", "cwd": "/me", "spark": {},
}  # fmt: skip
KEPT = {"verdict": "kept", "reasons": [], "anomalies": {}, "interrupted": False}
Each = Callable[[str], dict[str, Any]]


@pytest.fixture
def certify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Iterator[Outcome]]:
    """Runs the scenarios by a function of their names, which raises or returns a report."""

    def start(each: Each, *only: str, interrupted: threading.Event | None = None) -> Iterator[Outcome]:
        @contextmanager
        def opened(*_: object) -> Iterator[Any]:
            yield (lambda _cell, title, _probe: each(title.split()[-1])), interrupted or threading.Event()

        monkeypatch.setattr(runs, "open_series", opened)
        (tmp_path / "cells" / "001").mkdir(parents=True, exist_ok=True)
        return runs.run_all(RunSettings(Request(GIVEN), Results(tmp_path, "c"), Workspace(tmp_path)), only)

    return start


def fails_at(name: str, error: Exception) -> Each:
    def each(scenario: str) -> dict[str, Any]:
        if scenario == name:
            raise error
        return dict(KEPT)

    return each


def test_an_interrupted_certificate_claims_nothing(certify: Callable[..., Iterator[Outcome]]) -> None:
    interrupted = threading.Event()

    def each(scenario: str) -> dict[str, Any]:
        if scenario == "kill-after-call":
            interrupted.set()
        return {**KEPT, "interrupted": interrupted.is_set()}

    with pytest.raises(UserError, match="interrupted after 5 of 13 scenarios, so there is no certificate") as ended:
        list(certify(each, interrupted=interrupted))
    assert ended.value.exit_code == ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    "error",
    [UserError("Kafka died"), Unreadable("mine:read did not return the rows"), TooSlow("mine:empty failed")],
    ids=lambda error: type(error).__name__,
)
def test_a_scenario_that_fails_after_a_healthy_run_has_no_answer(
    error: Exception, certify: Callable[..., Iterator[Outcome]]
) -> None:
    outcomes = list(certify(fails_at("zombie", error)))
    assert [each.scenario.name for each in outcomes if each.undecided] == ["zombie"]
    assert len(outcomes) == len(SCENARIOS)


@pytest.mark.parametrize("error", [UserError("it died 4 times"), Unreadable("no rows"), UserMistake("no column j")])
def test_a_healthy_run_that_fails_ends_the_certificate(
    error: Exception, certify: Callable[..., Iterator[Outcome]]
) -> None:
    with pytest.raises(type(error), match=str(error)):
        list(certify(fails_at("healthy", error)))


@pytest.mark.parametrize("error", [UserMistake("setup failed"), UserError("no", exit_code=ExitCode.ENVIRONMENT)])
def test_a_mistake_or_a_lack_ends_the_certificate_at_any_time(
    error: Exception, certify: Callable[..., Iterator[Outcome]]
) -> None:
    with pytest.raises(type(error), match=str(error)):
        list(certify(fails_at("zombie", error)))


def test_an_unknown_scenario_is_refused_before_anything_runs(certify: Callable[..., Iterator[Outcome]]) -> None:
    with pytest.raises(
        UserError, match=r"--only kil-after-call: there is no such scenario\. The scenarios are healthy, "
    ) as no:
        next(certify(fails_at("healthy", AssertionError("it ran")), "kil-after-call"))
    assert no.value.exit_code == ExitCode.USAGE


def test_a_scenario_of_a_failpoint_that_no_healthy_run_passed_is_refused(
    certify: Callable[..., Iterator[Outcome]],
) -> None:
    with pytest.raises(UserError, match="--only kill-at-own-staged: there is no such scenario"):
        list(certify(lambda _: dict(KEPT), "kill-at-own-staged"))
