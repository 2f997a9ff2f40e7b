"""What a run, and each of its faults, came to in one word: its verdict, or `limit` where what broke it is known.

Promise: a pure function of reports, and the one place where `limit` is said: a run is that where everything forbidden
that it shows is charged to faults of which the fault matrix knows it (`oncebench.scenario.fault_matrix.LIMITS`).
Reports and exit
codes keep the verdict `broken`. A fault is `broken` in a run that is kept where it shows what its guarantee allows at
other points only (`oncebench.scenario.fault_matrix.HARMLESS_POINTS`). What can go wrong: two faults in one batch are
charged to the first of
them (see `oncebench.audit.python.attribution`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncebench.audit.verdict import BROKEN, KEPT, UNKNOWN, VACUOUS
from oncebench.delivery.failpoints import parse_fault
from oncebench.scenario.fault_matrix import HARMLESS_POINTS, LIMITS, RETROACTIVE_FAULTS, named

LIMIT = "limit"
# From worst to best: what is shown of several runs.
ORDER = (BROKEN, UNKNOWN, VACUOUS, LIMIT, KEPT)
# What a fault's own rows can say; every other forbidden anomaly belongs to the whole run.
CHARGED = {"LOSS": "lost", "DUP": "duplicated"}
Report = Mapping[str, Any]


def is_healthy(report: Report) -> bool:
    """Whether nothing was done to a run."""
    return not report["cell"]["faults"] and not report["cell"].get("random_kills")


def only_tried(report: Report) -> bool:
    """Whether a run is no more than the try of a rate (a probe of `oncebench sustain`): it may be one that is too high,
    so that only a promise that it broke tells anything."""
    return bool(report.get("probe")) and report["verdict"] != BROKEN


def word_of(report: Report) -> str:
    """What a run came to."""
    verdict = str(report["verdict"])
    if verdict != BROKEN or report["cell"]["random_kills"]:
        return verdict
    words = {judged(report, fault)[0] for fault in report["faults"]}
    return LIMIT if LIMIT in words and BROKEN not in words else BROKEN


def judged(report: Report, fault: Mapping[str, Any]) -> tuple[str, str]:
    """What one of a run's faults came to, and what was seen."""
    untested = _untested(fault)
    if report["verdict"] == BROKEN and (codes := _codes(report, fault)):
        cell, action = report["cell"], parse_fault(fault["fault"]).action
        known = {} if untested else LIMITS.get((action, cell["guarantee"], cell["variant"]), {})
        quiet = report.get("uncharged", {})  # rows that no fault answers for are no known limit of one
        its_own = action in RETROACTIVE_FAULTS and len(report["faults"]) == 1
        loose = not its_own and any(quiet.get(CHARGED[code]) for code in codes & CHARGED.keys())
        return (LIMIT if codes <= known.keys() and not loose else BROKEN), " ".join(sorted(codes))
    if untested:
        return VACUOUS, untested[0]
    if report["verdict"] == UNKNOWN:
        return UNKNOWN, "; ".join(report["reasons"])
    if report["verdict"] == VACUOUS and not any(_untested(each) for each in report["faults"]):
        return VACUOUS, "; ".join(report["reasons"])  # of the run as a whole
    if not report["rows"]["visible"]:
        return VACUOUS, "no row is visible"
    spared = HARMLESS_POINTS.get(report["cell"]["guarantee"], frozenset())
    if named([fault["fault"]]) in spared and (shown := _charged(fault)):
        return BROKEN, f"{' '.join(shown)}, where nothing is at stake"
    return KEPT, ""


def _charged(fault: Mapping[str, Any]) -> list[str]:
    return [code for code, name in CHARGED.items() if fault[name]]


def _untested(fault: Mapping[str, Any]) -> list[str]:
    """Why a fault tested nothing; older reports tell only of what found nothing to act on."""
    if not fault["hit"]:
        return ["not hit"]
    own: list[str] = fault.get("untested", [])
    return own or [line for line in fault.get("noted", ()) if line.startswith("nemesis-idle")]


def _codes(report: Report, fault: Mapping[str, Any]) -> set[str]:
    """The forbidden anomalies that a fault of a broken run answers for."""
    # Older reports do not tell the forbidden ones apart.
    forbidden = set(report["broken_by"] if "broken_by" in report else report["anomalies"])
    own = {code for code, name in CHARGED.items() if code in forbidden and fault[name]}
    quiet = report.get("uncharged", {})  # of batches in which no fault acted: any of them may have done it
    charged = {code for code, name in CHARGED.items()
               if any(each[name] for each in report["faults"]) and not quiet.get(name)}  # fmt: skip
    if _untested(fault) and not all(_untested(each) for each in report["faults"]):
        return own  # those that acted answer for the rest
    return own | (forbidden - charged)
