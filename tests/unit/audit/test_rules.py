"""What each guarantee forbids, and in which order the questions of a verdict are asked."""

from __future__ import annotations

from itertools import product

import pytest

from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.verdict import BROKEN, GUARANTEES, KEPT, RULES, UNKNOWN, VACUOUS, Facts, Verdict, decide

AMO, ALO, EO = GUARANTEES
NEVER = ("CORR", "DIV", "PHAN", "INCO", "QUAR", "STALL", "STALL-LSO")


def test_every_code_of_the_catalogue_has_a_rule_for_every_guarantee() -> None:
    assert RULES.keys() == CATALOGUE.keys()
    assert all(tuple(rules) == GUARANTEES for rules in RULES.values())


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_run_without_anomalies_keeps_its_promise(guarantee: str) -> None:
    assert decide({}, Facts(guarantee)) == Verdict(KEPT)
    assert decide(dict.fromkeys(CATALOGUE, 0), Facts(guarantee)) == Verdict(KEPT)


@pytest.mark.parametrize(
    ("guarantee", "code", "word"),
    [
        (AMO, "LOSS", KEPT), (AMO, "TORN", KEPT), (AMO, "DUP", BROKEN),
        (ALO, "LOSS", BROKEN), (ALO, "TORN", BROKEN), (ALO, "DUP", KEPT),
        (EO, "LOSS", BROKEN), (EO, "TORN", BROKEN), (EO, "DUP", BROKEN),
        *((guarantee, code, BROKEN) for guarantee, code in product(GUARANTEES, NEVER)),
        *((guarantee, "REORD", BROKEN) for guarantee in GUARANTEES),
        *((guarantee, code, UNKNOWN) for guarantee, code in product(GUARANTEES, ("PEND", "SRC"))),
    ],
)  # fmt: skip
def test_what_a_guarantee_forbids(guarantee: str, code: str, word: str) -> None:
    verdict = decide({code: 3}, Facts(guarantee, failed=True))
    assert verdict.word == word
    assert verdict.codes == ({code: 3} if word == BROKEN else {})


@pytest.mark.parametrize(("guarantee", "code"), [(AMO, "LOSS"), (AMO, "TORN"), (ALO, "DUP")])
def test_what_a_guarantee_allows_to_failures_it_forbids_to_a_healthy_run(guarantee: str, code: str) -> None:
    assert decide({code: 3}, Facts(guarantee)) == Verdict(BROKEN, {code: 3}, (f"{code}: 3",))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_another_order_is_no_fault_where_the_sink_keeps_none(guarantee: str) -> None:
    assert decide({"REORD": 1}, Facts(guarantee, ordered=False)).word == KEPT


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_leftovers_are_no_fault_where_the_sinks_own_housekeeping_removes_them(guarantee: str) -> None:
    assert decide({"ORPH": 1}, Facts(guarantee, swept=True)).word == KEPT


def test_only_the_forbidden_codes_are_held_against_a_run() -> None:
    verdict = decide({"DUP": 5, "LOSS": 2, "TORN": 1}, Facts(ALO, failed=True))
    assert verdict == Verdict(BROKEN, {"LOSS": 2, "TORN": 1}, ("LOSS: 2", "TORN: 1"))


def test_evidence_that_can_not_be_trusted_comes_before_everything() -> None:
    facts = Facts(EO, untrusted=("a",), weak=("b",), untested=("c",))
    assert decide({"DUP": 1}, facts) == Verdict(UNKNOWN, {}, ("a",))


def test_a_weak_or_vacuous_run_that_shows_a_forbidden_anomaly_is_broken() -> None:
    assert decide({"DUP": 1, "PEND": 4}, Facts(EO, weak=("b",), untested=("c",))).word == BROKEN


def test_a_weak_run_is_unknown_before_it_is_vacuous() -> None:
    assert decide({}, Facts(EO, weak=("b",), untested=("c",))) == Verdict(UNKNOWN, {}, ("b",))
    assert decide({}, Facts(EO, untested=("c",))) == Verdict(VACUOUS, {}, ("c",))


def test_pending_rows_leave_the_question_open() -> None:
    verdict = decide({"PEND": 7}, Facts(AMO))
    assert verdict.word == UNKNOWN
    assert "PEND: 7" in verdict.reasons[0]


@pytest.mark.parametrize("guarantee", ["exactly_once", "", "EXACTLY-ONCE"])
def test_an_unknown_guarantee_is_refused(guarantee: str) -> None:
    with pytest.raises(ValueError, match="unknown guarantee"):
        decide({}, Facts(guarantee))


def test_a_code_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="NEW"):
        decide({"NEW": 1}, Facts(EO))
