"""What each guarantee forbids, and in which order the questions of a verdict are asked."""

from __future__ import annotations

from itertools import product

import pytest

from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.verdict import GUARANTEES, RULES, Facts, Judgement, Verdict, decide

AMO, ALO, EO = GUARANTEES
NEVER = ("CORR", "DIV", "PHAN", "INCO", "QUAR", "STALL", "STALL-LSO")


def test_every_code_of_the_catalogue_has_a_rule_for_every_guarantee() -> None:
    assert RULES.keys() == CATALOGUE.keys()
    assert all(tuple(rules) == GUARANTEES for rules in RULES.values())


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_run_without_anomalies_keeps_its_promise(guarantee: str) -> None:
    assert decide({}, Facts(guarantee)) == Judgement(Verdict.KEPT)
    assert decide(dict.fromkeys(CATALOGUE, 0), Facts(guarantee)) == Judgement(Verdict.KEPT)


@pytest.mark.parametrize(
    ("guarantee", "code", "word"),
    [
        (AMO, "LOSS", Verdict.KEPT), (AMO, "TORN", Verdict.KEPT), (AMO, "DUP", Verdict.BROKEN),
        (ALO, "LOSS", Verdict.BROKEN), (ALO, "TORN", Verdict.BROKEN), (ALO, "DUP", Verdict.KEPT),
        (EO, "LOSS", Verdict.BROKEN), (EO, "TORN", Verdict.BROKEN), (EO, "DUP", Verdict.BROKEN),
        *((guarantee, code, Verdict.BROKEN) for guarantee, code in product(GUARANTEES, NEVER)),
        *((guarantee, "REORD", Verdict.BROKEN) for guarantee in GUARANTEES),
        *((guarantee, code, Verdict.UNKNOWN) for guarantee, code in product(GUARANTEES, ("PEND", "SRC"))),
    ],
)  # fmt: skip
def test_what_a_guarantee_forbids(guarantee: str, code: str, word: str) -> None:
    verdict = decide({code: 3}, Facts(guarantee, failed=True))
    assert verdict.verdict == word
    assert verdict.codes == ({code: 3} if word == Verdict.BROKEN else {})


@pytest.mark.parametrize(("guarantee", "code"), [(AMO, "LOSS"), (AMO, "TORN"), (ALO, "DUP")])
def test_a_code_allowed_after_a_failure_is_forbidden_in_a_healthy_run(guarantee: str, code: str) -> None:
    assert decide({code: 3}, Facts(guarantee)) == Judgement(Verdict.BROKEN, {code: 3}, (f"{code}: 3",))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_another_order_is_allowed_if_the_sink_keeps_none(guarantee: str) -> None:
    assert decide({"REORD": 1}, Facts(guarantee, ordered=False)).verdict == Verdict.KEPT


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_leftovers_are_allowed_in_a_self_cleaning_sink(guarantee: str) -> None:
    assert decide({"ORPH": 1}, Facts(guarantee, leftovers_allowed=True)).verdict == Verdict.KEPT


def test_only_forbidden_codes_break_a_run() -> None:
    verdict = decide({"DUP": 5, "LOSS": 2, "TORN": 1}, Facts(ALO, failed=True))
    assert verdict == Judgement(Verdict.BROKEN, {"LOSS": 2, "TORN": 1}, ("LOSS: 2", "TORN: 1"))


def test_evidence_that_can_not_be_trusted_comes_before_everything() -> None:
    facts = Facts(EO, untrusted=("a",), weak=("b",), not_exercised=("c",))
    assert decide({"DUP": 1}, facts) == Judgement(Verdict.UNKNOWN, {}, ("a",))


def test_a_weak_or_vacuous_run_that_shows_a_forbidden_anomaly_is_broken() -> None:
    assert decide({"DUP": 1, "PEND": 4}, Facts(EO, weak=("b",), not_exercised=("c",))).verdict == Verdict.BROKEN


def test_a_weak_run_is_unknown_before_it_is_vacuous() -> None:
    assert decide({}, Facts(EO, weak=("b",), not_exercised=("c",))) == Judgement(Verdict.UNKNOWN, {}, ("b",))
    assert decide({}, Facts(EO, not_exercised=("c",))) == Judgement(Verdict.VACUOUS, {}, ("c",))


def test_pending_rows_make_the_run_unknown() -> None:
    verdict = decide({"PEND": 7}, Facts(AMO))
    assert verdict.verdict == Verdict.UNKNOWN
    assert "PEND: 7" in verdict.reasons[0]


@pytest.mark.parametrize("guarantee", ["exactly_once", "", "EXACTLY-ONCE"])
def test_an_unknown_guarantee_is_refused(guarantee: str) -> None:
    with pytest.raises(ValueError, match="unknown guarantee"):
        decide({}, Facts(guarantee))


def test_a_code_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="NEW"):
        decide({"NEW": 1}, Facts(EO))
