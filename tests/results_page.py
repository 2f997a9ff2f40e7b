"""Shared by tests of the published page: the reports that it displays, and actions on it."""

from __future__ import annotations

import json
from typing import Any

from tests import sample_reports
from tests.browser import Page


def reports() -> list[dict[str, Any]]:
    """All runs of three sinks, and a series with a trigger interval, which has processor time.

    A reason, an id and versions contain markup, which the page must display as text.
    """
    sinks = ("kafka", "delta", "broken-kafka")
    made = [each for each in sample_reports.reports(rounds=3, seeds=1) if each["cell"]["sink"] in sinks]
    made += [each for each in sample_reports.healthy(3, trigger_ms=5000) if each["cell"]["sink"] == "kafka"]
    unknown = next(each for each in made if each["cell"]["faults"] and each["verdict"] == "kept")
    unknown |= {"verdict": "unknown", "reasons": [sample_reports.HOSTILE], "run": sample_reports.HOSTILE}
    made[0]["environment"] = {**made[0]["environment"], "cpu": sample_reports.HOSTILE, "java": sample_reports.HOSTILE}
    made[0]["reproduce"] = sample_reports.HOSTILE
    return made


def rows(page: Page, part: str) -> list[str]:
    """The row headings of the tables in a part of the page."""
    return list(page.run(f"[...document.querySelectorAll('#{part} tbody tr')].map((row) => row.cells[0].innerText)"))


def click(page: Page, selector: str) -> None:
    page.run(f"document.querySelector({json.dumps(selector)}).click()")


def chip(kind: str, value: str) -> str:
    return f'.chip[data-kind="{kind}"][data-value="{value}"]'


def focused(page: Page, what: str = "innerText") -> Any:
    return page.run(f"document.activeElement.{what}")
