"""Finds the guarantee that a sink keeps: the strongest one that no scenario broke.

Promise: the results depend on the reports alone. The rules of the audit (`oncebench.audit.verdict.RULES`) judge each
run, under each guarantee. A scenario has no answer if its verdict is `unknown` or `vacuous`, or if its run failed or
did not finish. Then the guarantee is not proven. If a run breaks a guarantee and has open questions, it gives no
answer for the weaker guarantees: it proves that one is broken, and cannot show that another one is kept.

What can go wrong: reports of older versions lack fields. They have no open questions and no counts of the rows that no
failure touched. They do not show that a run did not finish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncebench.audit.not_exercised import NOT_HIT
from oncebench.audit.python.attribution import Excuses
from oncebench.audit.verdict import AFTER_FAILURE, RULES, Facts, Judgement, Verdict, decide
from oncebench.certify.scenarios import Scenario
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE

# From the strongest to the weakest.
STRENGTH = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)
NONE = "none"
_NO_ANSWER = (Verdict.UNKNOWN, Verdict.VACUOUS)


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
        """Why the scenario has no answer for any guarantee; empty if it has one."""
        if not self.report:
            return self.failure
        # Whatever was broken before: the rest of the run would have to show what is kept.
        if not_finished := self.report.get("not_finished"):
            return str(not_finished)
        if self.report["verdict"] in _NO_ANSWER:
            return self._reasons(self.report["reasons"]) or str(self.report["verdict"])
        return ""

    def unanswered(self, guarantee: str) -> str:
        """Returns why the scenario has no answer for this guarantee; empty if it has one."""
        if self.undecided:
            return self.undecided
        judged = self._judged(guarantee)
        return self._reasons(judged.reasons) or str(judged.verdict) if judged.verdict in _NO_ANSWER else ""

    def broken(self, guarantee: str) -> dict[str, int]:
        """Returns the anomalies of the run that this guarantee forbids, as code -> count.

        The result is empty if the run has no answer.
        """
        return {} if self.undecided else dict(self._judged(guarantee).codes)

    def untouched(self, guarantee: str) -> dict[str, int]:
        """Counts the rows that only a failure would excuse, and that no failure touched.

        Returns anomaly code -> rows, for the anomalies that this guarantee allows after a failure.
        """
        missing = {} if self.scenario.healthy else self._excuses(guarantee).missing
        codes = (code for code in self.broken(guarantee) if RULES[code][guarantee] == AFTER_FAILURE)
        return {code: missing[code] for code in codes if code in missing}

    def _judged(self, guarantee: str) -> Judgement:
        """Judges the run under a guarantee, with the evidence that its report has."""
        failed = not self.scenario.healthy or bool(self.report.get("deaths", {}).get("unasked"))
        questions: Mapping[str, Sequence[str]] = self.report.get("open_questions", {})
        facts = Facts(
            guarantee,
            failed=failed,
            excuses=self._excuses(guarantee),
            ordered=False,
            weak=tuple(questions.get("weak", ())),
            undecided=tuple(questions.get("undecided", ())),
            not_exercised=tuple(questions.get("not_exercised", ())),
        )
        return decide(self.report["anomalies"], facts)

    def _excuses(self, guarantee: str) -> Excuses:
        found = self.report.get("excuses", {}).get(guarantee, {})
        return Excuses(found.get("missing", {}), found.get("unknown", {}))

    def _reasons(self, reasons: Sequence[str]) -> str:
        missed = self.scenario.no_hit if any(reason.endswith(NOT_HIT) for reason in reasons) else ""
        return "; ".join(filter(None, [*reasons, missed]))


def strongest(outcomes: Sequence[Outcome]) -> str:
    """Returns the strongest guarantee that no outcome breaks, or NONE."""
    kept = (guarantee for guarantee in STRENGTH if not any(each.broken(guarantee) for each in outcomes))
    return next(kept, NONE)


def proven(outcomes: Sequence[Outcome], guarantee: str | None = None) -> bool:
    """Whether at least one scenario ran, and each one that ran has an answer for the guarantee.

    Args:
        guarantee: None: the strongest one that is kept.
    """
    asked = guarantee or strongest(outcomes)
    if asked == NONE:
        return bool(outcomes) and not any(each.undecided for each in outcomes)
    return bool(outcomes) and not any(each.unanswered(asked) for each in outcomes)


def tested(outcomes: Sequence[Outcome]) -> bool:
    """Whether at least one scenario has an answer."""
    return any(not each.undecided for each in outcomes)


def keeps(outcomes: Sequence[Outcome], guarantee: str) -> bool:
    """Whether no outcome breaks the guarantee."""
    return not any(each.broken(guarantee) for each in outcomes)
