"""The outcome of a run and of each of its faults: the verdict, or `limit`.

`limit` means that a known limit broke the promise.

Promise: a pure function of reports, and the only place that assigns `limit`. A run is a `limit` if all its forbidden
anomalies are charged to faults whose limits the fault matrix lists (`oncebench.scenario.matrix.limits.LIMITS`). Reports
and exit codes keep the verdict `broken`. A fault can be `broken` in a run that is kept: it shows what its guarantee
allows at other points only (`oncebench.scenario.matrix.limits.HARMLESS_POINTS`).
What can go wrong: two faults in one batch are charged to the first of them (see `oncebench.audit.python.attribution`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from oncebench.audit.verdict import Verdict
from oncebench.delivery.failpoints import parse_fault
from oncebench.record import events
from oncebench.report.schema import Fault, Report
from oncebench.scenario.matrix.families import named
from oncebench.scenario.matrix.limits import HARMLESS_POINTS, LIMITS, RETROACTIVE_FAULTS

LIMIT = "limit"
# From worst to best: of several runs the worst is displayed.
ORDER = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.VACUOUS, LIMIT, Verdict.KEPT)
# The anomalies that are counted per fault. Every other forbidden anomaly belongs to the whole run.
CHARGED: Mapping[str, Literal["lost", "duplicated"]] = {"LOSS": "lost", "DUP": "duplicated"}


def is_healthy(report: Report) -> bool:
    """Whether a run had no faults."""
    return not report["cell"]["faults"] and not report["cell"].get("random_kills")


def only_tried(report: Report) -> bool:
    """Whether a run only tried a rate (a probe of `oncebench sustain`).

    The rate may be too high, so such a run counts only if it broke its promise.
    """
    return bool(report.get("probe")) and report["verdict"] != Verdict.BROKEN


def broken_by(report: Report) -> list[str]:
    """The anomalies of a run that its guarantee forbids, sorted.

    Older reports do not list them separately, so those return all anomalies.
    """
    return sorted(report["broken_by"] if "broken_by" in report else report["anomalies"])


def outcome_of(report: Report) -> str:
    """The outcome of a run."""
    verdict = report["verdict"]
    if verdict != Verdict.BROKEN or report["cell"]["random_kills"]:
        return verdict
    outcomes = {fault_outcome(report, fault)[0] for fault in report["faults"]}
    return LIMIT if LIMIT in outcomes and Verdict.BROKEN not in outcomes else Verdict.BROKEN


def fault_outcome(report: Report, fault: Fault) -> tuple[str, str]:
    """The outcome of one of a run's faults, and what was seen."""
    untested = _untested(fault)
    if report["verdict"] == Verdict.BROKEN and (codes := _codes(report, fault)):
        cell, action = report["cell"], parse_fault(fault["fault"]).action
        known = {} if untested else LIMITS.get((action, cell["guarantee"], cell["variant"]), {})
        uncharged = report.get("uncharged", {})  # rows that no fault explains are not a known limit of a fault
        only_cause = action in RETROACTIVE_FAULTS and len(report["faults"]) == 1
        unexplained = not only_cause and any(uncharged.get(CHARGED[code]) for code in codes & CHARGED.keys())
        return (LIMIT if codes <= known.keys() and not unexplained else Verdict.BROKEN), " ".join(sorted(codes))
    if untested:
        return Verdict.VACUOUS, untested[0]
    if report["verdict"] == Verdict.UNKNOWN:
        return Verdict.UNKNOWN, "; ".join(report["reasons"])
    if report["verdict"] == Verdict.VACUOUS and not any(_untested(each) for each in report["faults"]):
        return Verdict.VACUOUS, "; ".join(report["reasons"])  # the run as a whole tested nothing
    if not report["rows"]["visible"]:
        return Verdict.VACUOUS, "no row is visible"
    spared = HARMLESS_POINTS.get(report["cell"]["guarantee"], frozenset())
    if named([fault["fault"]]) in spared and (codes_here := _charged(fault)):
        return Verdict.BROKEN, f"{' '.join(codes_here)}, where nothing is at stake"
    return Verdict.KEPT, ""


def _charged(fault: Fault) -> list[str]:
    return [code for code, name in CHARGED.items() if fault[name]]


def _untested(fault: Fault) -> list[str]:
    """Why a fault tested nothing.

    Older reports have this only where the fault found nothing to act on.
    """
    if not fault["hit"]:
        return ["not hit"]
    return fault.get("untested") or [line for line in fault.get("noted", ()) if line.startswith(events.NEMESIS_IDLE)]


def _codes(report: Report, fault: Fault) -> set[str]:
    """The forbidden anomalies that a fault of a broken run explains."""
    forbidden = set(broken_by(report))
    own = {code for code in _charged(fault) if code in forbidden}
    uncharged = report.get("uncharged", {})  # in batches without a fault: any of the faults may be the cause
    charged = {code for code, name in CHARGED.items()
               if any(each[name] for each in report["faults"]) and not uncharged.get(name)}  # fmt: skip
    if _untested(fault) and not all(_untested(each) for each in report["faults"]):
        return own  # the faults that acted explain the rest
    return own | (forbidden - charged)
