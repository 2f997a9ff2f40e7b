"""Finds the guarantee that a sink keeps: the strongest one that no scenario broke.

Promise: the results depend on the reports alone. The rules of the audit (`oncebench.audit.verdict.RULES`) judge each
run, under each guarantee. A scenario has no answer if its verdict is `unknown` or `vacuous`, or if its run failed or
did not finish. Then the guarantee is not proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncebench.audit.not_exercised import NOT_HIT
from oncebench.audit.verdict import NOT_FINISHED, Facts, Verdict, decide
from oncebench.certify.scenarios import Scenario
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE

# From the strongest to the weakest.
STRENGTH = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)
NONE = "none"


@dataclass(frozen=True)
class Outcome:
    """The result of one scenario.

    Attributes:
        scenario: what happened in the run.
        report: the report of the run; empty if the run failed.
        failure: why the run failed; empty if it did not.
    """

    scenario: Scenario
    report: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def undecided(self) -> str:
        """Why the scenario has no answer; empty if it has one."""
        if not self.report:
            return self.failure
        # Whatever was broken before: the rest of the run would have to show what is kept.
        if not_finished := [reason for reason in self.report["reasons"] if reason.startswith(NOT_FINISHED)]:
            return str(not_finished[0])
        if self.report["verdict"] in (Verdict.UNKNOWN, Verdict.VACUOUS):
            missed = any(reason.endswith(NOT_HIT) for reason in self.report["reasons"]) and self.scenario.no_hit
            return "; ".join([*self.report["reasons"], *filter(None, [missed])]) or str(self.report["verdict"])
        return ""

    def broken(self, guarantee: str) -> dict[str, int]:
        """Returns the anomalies of the run that this guarantee forbids, as code -> count; empty without an answer."""
        if not self.report or self.undecided:
            return {}
        failed = not self.scenario.healthy or bool(self.report.get("deaths", {}).get("unasked"))
        facts = Facts(guarantee, failed=failed, ordered=False)
        return dict(decide(self.report["anomalies"], facts).codes)


def strongest(outcomes: Sequence[Outcome]) -> str:
    """Returns the strongest guarantee that no outcome breaks, or NONE."""
    kept = (guarantee for guarantee in STRENGTH if not any(each.broken(guarantee) for each in outcomes))
    return next(kept, NONE)


def proven(outcomes: Sequence[Outcome]) -> bool:
    """Whether at least one scenario ran, and each one that ran has an answer."""
    return bool(outcomes) and not any(each.undecided for each in outcomes)


def tested(outcomes: Sequence[Outcome]) -> bool:
    """Whether at least one scenario has an answer."""
    return any(not each.undecided for each in outcomes)


def keeps(outcomes: Sequence[Outcome], guarantee: str) -> bool:
    """Whether no outcome breaks the guarantee."""
    return not any(each.broken(guarantee) for each in outcomes)
