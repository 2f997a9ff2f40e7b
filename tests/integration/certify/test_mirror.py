"""The mirror table: a clean sink and a defective sink in each scenario.

The clean sink keeps exactly-once, and the defective sink breaks it. A scenario that no defect fails would test nothing.
A scenario that the clean sink fails would accuse every sink.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncebench.certify.kept import Outcome
from oncebench.certify.scenarios import SCENARIOS, SINK, cell_of
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.lab.lab import Lab, open_lab
from oncebench.measure import measure
from oncebench.servers.postgres import PostgresServer
from oncebench.workdir import open_work_dir
from tests.integration.certify.defects import CLEAN, DEFECTS, MORE, OWN, OWN_SCENARIOS, PUBLIC

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("certify"), sinks={SINK}) as lab:
        yield lab


def test_every_scenario_has_a_defect() -> None:
    assert list(DEFECTS) == [each.name for each in SCENARIOS]


@pytest.mark.parametrize("defective", [False, True], ids=["clean", "defective"])
@pytest.mark.slow  # all of them take fifteen minutes
@pytest.mark.parametrize("name", list(DEFECTS))
def test_a_scenario_passes_a_clean_sink_and_fails_a_defective_one(
    name: str, defective: bool, own_lab: Lab, tmp_path: Path
) -> None:
    sink, code = DEFECTS[name] if defective else (CLEAN, "")
    outcome = run(name, own_lab, tmp_path, write=f"sqlite_sinks:{sink}", read="sqlite_sinks:read_rows")
    assert (code in outcome.broken(EXACTLY_ONCE)) is defective, outcome.report["reasons"]
    assert bool(outcome.broken(EXACTLY_ONCE)) is defective


@pytest.mark.slow
@pytest.mark.parametrize("sink", MORE)
def test_a_scenario_finds_each_further_defect(sink: str, own_lab: Lab, tmp_path: Path) -> None:
    scenario, guarantee, code = MORE[sink]
    outcome = run(scenario, own_lab, tmp_path, write=f"sqlite_sinks:{sink}", read="sqlite_sinks:read_rows")
    assert code in outcome.broken(guarantee), outcome.report["reasons"]


def run(name: str, lab: Lab, folder: Path, **fields: Any) -> Outcome:
    """Runs one scenario of a sink in `sinks/`."""
    (scenario,) = [each for each in SCENARIOS if each.name == name]
    given = {
        "write": "", "format": "", "options": {}, "read": "", "setup": "", "spark": {},
        "cwd": str(Path(__file__).parent / "sinks"), **fields,
    }  # fmt: skip
    with open_work_dir(folder / "run") as work:
        report = measure(cell_of(scenario, bool(given["write"]), json.dumps(given), 1), lab, work.path)
    outcome = Outcome(scenario, dict(report))
    assert outcome.undecided == ""
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_a_defective_sink_made_of_public_packages_is_found(
    name: str, own_lab: Lab, own: PostgresServer, tmp_path: Path
) -> None:
    scenario, code, fields = PUBLIC[name]
    assert code in run(scenario, own_lab, tmp_path, **fields()).broken(EXACTLY_ONCE)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", OWN_SCENARIOS)
@pytest.mark.parametrize("sink", OWN)
def test_a_sink_of_this_project_is_exactly_once_as_a_black_box(
    sink: str, scenario: str, own_lab: Lab, own: PostgresServer, tmp_path: Path
) -> None:
    fields = {"write": f"own_sinks:{sink}", "read": f"own_sinks:read_{sink}", **OWN[sink]()}
    assert run(scenario, own_lab, tmp_path, **fields).broken(EXACTLY_ONCE) == {}
