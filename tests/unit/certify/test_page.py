"""docs/certify.md lists every scenario and variable.

docs/why_believe_it.md lists the sinks that show each scenario.
"""

from __future__ import annotations

import inspect
import re

from oncebench.certify.in_test import Certify
from oncebench.certify.request import Request
from oncebench.certify.scenarios import SCENARIOS
from oncebench.sinks.black_box import target
from tests import ROOT
from tests.integration.certify.defects import CLEAN, DEFECTS, PUBLIC

PAGE = (ROOT / "docs" / "certify.md").read_text()
WHY = (ROOT / "docs" / "why_believe_it.md").read_text()


def test_the_page_lists_the_scenarios() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (each.name, each.description, ", ".join(f"`{fault}`" for fault in each.faults) or "none")
        if not each.random_kills
        else (each.name, each.description, f"{each.random_kills} random kills")
        for each in SCENARIOS
    ]


def test_the_page_lists_the_variables() -> None:
    assert set(re.findall(r"^\| `(ONCEBENCH_\w+)` \|", PAGE, re.MULTILINE)) == {
        target.FOLDER, target.RUN, target.KAFKA,
    }  # fmt: skip


def test_the_mirror_table_lists_a_clean_and_a_defective_sink_for_each_scenario() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `(\w+)` kept \| `(\w+)` broken: (\w+) \|", WHY, re.MULTILINE)
    assert rows == [(name, CLEAN, sink, code) for name, (sink, code) in DEFECTS.items()]


def test_the_table_of_public_packages_lists_each_defect() -> None:
    rows = re.findall(r"^\| (.+) \| `([\w-]+)` \| broken: (\w+) \|", WHY, re.MULTILINE)
    assert rows == [(name, scenario, code) for name, (scenario, code, _) in PUBLIC.items()]


def test_the_page_shows_the_command_that_a_failing_test_prints() -> None:
    given = {
        "write": "my_sink:write_batch", "format": "", "options": {}, "read": "my_sink:read_rows",
        "setup": "my_sink:empty", "spark": {},
    }  # fmt: skip
    require = inspect.signature(Certify.__call__).parameters["require"].default
    (scenario,) = [each for each in SCENARIOS if each.name == "kill-after-call"]
    shown = re.findall(r"^      (oncebench certify my_sink.* --require .*)$", PAGE, re.MULTILINE)
    assert shown == [Request(given, require=require).command(scenario)]
