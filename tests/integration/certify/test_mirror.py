"""The mirror table: in each scenario a clean sink keeps exactly-once, and a defective sink breaks it.

A scenario that no defect fails would test nothing. A scenario that the clean sink fails would accuse every sink.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from oncebench.certify.kept import Outcome
from oncebench.certify.scenarios import SCENARIOS, SINK, cell_of
from oncebench.delivery.contract import EXACTLY_ONCE
from oncebench.downloads.maven import jars
from oncebench.lab.lab import Lab, open_lab
from oncebench.measure import measure
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.registry import SINKS
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
    outcome = run(name, own_lab, tmp_path, write=f"sqlite_sinks:{sink}", read="sqlite_sinks:read_rows")
    assert (code in outcome.broken(EXACTLY_ONCE)) is defective, outcome.report["reasons"]
    assert bool(outcome.broken(EXACTLY_ONCE)) is defective


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


def delta() -> dict[str, str]:
    """Returns the Spark settings that a Delta table needs."""
    found = ",".join(str(jar) for bundle in SINKS["delta"].jars for jar in jars(bundle))
    return {**SINKS["delta"].spark, "spark.jars": found}


# Sinks that users write with public packages, each with a scenario that finds its defect.
PUBLIC: Mapping[str, tuple[str, str, Callable[[], dict[str, Any]]]] = {
    "Spark's file sink, read without _spark_metadata": (
        "kill-amid-call",
        "DUP",
        lambda: {
            "format": "parquet", "options": {"path": "$ONCEBENCH_OUTPUT/rows"}, "read": "parquet_reader:read_rows",
        },
    ),
    "a Delta append without txnVersion": (
        "kill-after-call",
        "DUP",
        lambda: {"write": "table_sinks:append_to_delta", "read": "table_sinks:read_delta", "spark": delta()},
    ),
    "a Kafka write that ignores batch_id": (
        "kill-after-call",
        "DUP",
        lambda: {"write": "kafka_sinks:write_batch", "read": "kafka_sinks:read_rows", "setup": "kafka_sinks:empty"},
    ),
    "an upsert by a random key": (
        "kill-after-call",
        "DUP",
        lambda: {
            "write": "table_sinks:upsert_by_random_key", "read": "table_sinks:read_postgres",
            "setup": "table_sinks:empty",
        },
    ),
    "an early return on a batch that was seen": (
        "kill-after-call",
        "STALL",
        lambda: {"write": "sqlite_sinks:skip_seen", "read": "sqlite_sinks:read_rows"},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_a_defective_sink_made_of_public_packages_is_found(
    name: str, own_lab: Lab, own: PostgresServer, tmp_path: Path
) -> None:
    scenario, code, fields = PUBLIC[name]
    assert code in run(scenario, own_lab, tmp_path, **fields()).broken(EXACTLY_ONCE)


# Sinks of this project, each with its functions in `sinks/own_sinks.py`.
OWN: Mapping[str, Callable[[], dict[str, Any]]] = {
    "files": lambda: {},
    "kafka": lambda: {"setup": "own_sinks:make_topic"},
    "postgres": lambda: {"setup": "own_sinks:make_table"},
    "delta": lambda: {"spark": delta()},
}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["kill-amid-call", "kill-after-call", "zombie-amid-call"])
@pytest.mark.parametrize("sink", OWN)
def test_a_sink_of_this_project_is_exactly_once_as_a_black_box(
    sink: str, scenario: str, own_lab: Lab, own: PostgresServer, tmp_path: Path
) -> None:
    fields = {"write": f"own_sinks:{sink}", "read": f"own_sinks:read_{sink}", **OWN[sink]()}
    assert run(scenario, own_lab, tmp_path, **fields).broken(EXACTLY_ONCE) == {}
