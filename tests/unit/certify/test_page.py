"""docs/certify.md lists every scenario and every environment variable."""

from __future__ import annotations

import re

from oncebench.certify.scenarios import SCENARIOS
from oncebench.sinks.black_box import target
from tests import ROOT

PAGE = (ROOT / "docs" / "certify.md").read_text()


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
