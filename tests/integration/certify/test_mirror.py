"""The mirror table: in each scenario a clean sink keeps exactly-once, and a defective sink breaks it.

A scenario that no defect fails would test nothing. A scenario that the clean sink fails would accuse every sink.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from oncebench.certify.kept import Outcome
from oncebench.certify.scenarios import SCENARIOS, SINK, cell_of
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.lab.lab import Lab, open_lab
from oncebench.measure import measure
from oncebench.workdir import open_work_dir

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

CLEAN = "upsert"
# Scenario -> the sink that it finds out, and by which anomaly.
DEFECTS: Mapping[str, tuple[str, str]] = {
    "healthy": ("first_rows", "LOSS"),
    "kill-at-batch-start": ("own_numbers", "LOSS"),
    "kill-amid-call": ("append", "DUP"),
    "kill-before-return": ("append", "DUP"),
    "kill-after-call": ("append", "DUP"),
    "kill-after-commit-log": ("own_numbers", "LOSS"),
    "double-kill": ("append", "DUP"),
    "kill-worker": ("append", "DUP"),
    "zombie": ("append", "DUP"),
    "zombie-amid-call": ("check_then_write", "DUP"),
    "replay": ("append", "DUP"),
    "random-kills": ("own_numbers", "LOSS"),
}
ALWAYS = ("kill-after-call",)  # the others take eleven minutes, so `make test-slow` has them


@pytest.fixture(scope="module")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("certify"), sinks={SINK}) as lab:
        yield lab


def test_every_scenario_has_a_defect() -> None:
    assert list(DEFECTS) == [each.name for each in SCENARIOS]


@pytest.mark.parametrize("defective", [False, True], ids=["clean", "defective"])
@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in DEFECTS]
)
def test_a_scenario_passes_a_clean_sink_and_fails_a_defective_one(
    name: str, defective: bool, own_lab: Lab, tmp_path: Path
) -> None:
    sink, code = DEFECTS[name] if defective else (CLEAN, "")
    (scenario,) = [each for each in SCENARIOS if each.name == name]
    given = {
        "write": f"sqlite_sinks:{sink}", "format": "", "options": {}, "read": "sqlite_sinks:read_rows", "setup": "",
        "cwd": str(Path(__file__).parent / "sinks"), "spark": {},
    }  # fmt: skip
    with open_work_dir(tmp_path / "run") as folder:
        report = measure(cell_of(scenario, True, json.dumps(given), 1), own_lab, folder.path)
    outcome = Outcome(scenario, dict(report))
    assert outcome.undecided == ""
    assert (code in outcome.broken(EXACTLY_ONCE)) is defective, report["reasons"]
    assert bool(outcome.broken(EXACTLY_ONCE)) is defective
