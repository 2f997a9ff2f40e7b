"""The guarantee of a sink: the strongest one that no scenario broke."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from oncebench.audit.verdict import NOT_FINISHED
from oncebench.certify.certificate import certificate
from oncebench.certify.evidence import result
from oncebench.certify.junit import junit
from oncebench.certify.kept import NONE, STRENGTH, Outcome, keeps, proven, strongest
from oncebench.certify.request import Request
from oncebench.certify.scenarios import HEALTHY, SCENARIOS, Scenario, cell_of, chosen, of_own_points
from oncebench.delivery.failpoints import POINTS, parse_fault

KILL = Scenario("kill-after-call", "the job is killed", ("after-commit:kill",))
GIVEN = {
    "write": "mine:write", "format": "", "options": {}, "read": "mine:read", "setup": "", "cwd": "/me", "spark": {},
}  # fmt: skip


def outcome(scenario: Scenario = KILL, verdict: str = "broken", unasked: int = 0, **anomalies: int) -> Outcome:
    report: dict[str, Any] = {
        "verdict": verdict if anomalies or verdict != "broken" else "kept",
        "reasons": ["not hit"],
        "anomalies": anomalies,
        "deaths": {"unasked": unasked, "each_unasked": [{"why": "stopped: QueryDied"}] * unasked},
        "rows": {"expected": 480, "visible": 480},
        "faults": [{"hit": True, "batch": 6, "fault": "after-commit:kill"}],
        "examples": {
            code: [{"id": "1-00000004:7", "rows": [[0, 1], [0, 2]], "input": [[1, 90]]}] for code in anomalies
        },
    }
    return Outcome(scenario, report)


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        ([outcome(HEALTHY), outcome()], "exactly-once"),
        ([outcome(HEALTHY), outcome(DUP=60)], "at-least-once"),
        ([outcome(HEALTHY), outcome(LOSS=60, LOSTC=1)], "at-most-once"),
        ([outcome(DUP=60), outcome(LOSS=60)], NONE),
        ([outcome(DIV=1)], NONE),
        ([outcome(STALL=40)], NONE),
        ([outcome(PHAN=1)], NONE),
        # Without a fault no guarantee allows either.
        ([outcome(HEALTHY, DUP=1)], NONE),
        ([outcome(HEALTHY, LOSS=1)], NONE),
        # The sink itself has ended the job: its replay may repeat rows under at-least-once.
        ([outcome(HEALTHY, unasked=1, DUP=1)], "at-least-once"),
    ],
)
def test_the_strongest_guarantee_that_no_scenario_broke_is_kept(outcomes: list[Outcome], kept: str) -> None:
    assert strongest(outcomes) == kept
    assert proven(outcomes)


@pytest.mark.parametrize(
    "silent", [outcome(verdict="vacuous"), outcome(verdict="unknown", DUP=3), Outcome(KILL, failure="it died")]
)
def test_a_run_without_an_answer_proves_nothing_and_breaks_nothing(silent: Outcome) -> None:
    outcomes = [outcome(HEALTHY), silent]
    assert not proven(outcomes)
    assert strongest(outcomes) == "exactly-once"
    assert "not proven" in certificate(Request(GIVEN), outcomes, "")
    assert ElementTree.fromstring(junit(Request(GIVEN), outcomes)).get("errors") == "1"


@pytest.mark.parametrize("found", [outcome(), outcome(DUP=60)])
def test_a_run_that_was_too_slow_to_finish_condemns_no_sink_and_proves_nothing(found: Outcome) -> None:
    reasons = [*found.report["anomalies"], NOT_FINISHED]
    slow = Outcome(KILL, {**found.report, "reasons": reasons, "not_finished": NOT_FINISHED})
    outcomes = [outcome(HEALTHY), slow]
    assert [slow.broken(guarantee) for guarantee in STRENGTH] == [{}, {}, {}]
    assert not proven(outcomes)
    assert result(slow) == f"not tested: {NOT_FINISHED}"
    page = certificate(Request(GIVEN), outcomes, "")
    assert "| kill-after-call | the job is killed | not tested | not tested | not tested |" in page
    assert f"- kill-after-call: {NOT_FINISHED}\n" in page


def test_a_weaker_guarantee_is_kept_where_a_stronger_one_is_broken() -> None:
    outcomes = [outcome(HEALTHY), outcome(DUP=60)]
    assert [keeps(outcomes, each) for each in ("exactly-once", "at-least-once", "at-most-once")] == [False, True, False]


def test_a_certificate_has_the_evidence_and_the_command_of_each_broken_guarantee() -> None:
    page = certificate(Request(GIVEN, 7), [outcome(HEALTHY), outcome(DUP=60)], "Made today.")
    assert page.startswith("# mine:write keeps in the scenarios that ran: at-least-once\n")
    assert "| kill-after-call | the job is killed | broken | kept | broken |" in page
    assert "60 extra copies (DUP: rows visible more than once)" in page
    assert "row 1-00000004:7, visible 2 times, made from the input at partition 1, offset 90" in page
    assert "    oncebench certify mine:write --reader mine:read --seed 7 --only kill-after-call\n" in page


def test_the_title_says_no_more_than_the_scenarios_prove() -> None:
    every = [outcome(each) for each in chosen(True)]
    silent = Outcome(every[-1].scenario, failure="it died")
    titles = [
        certificate(Request(GIVEN), part, "").splitlines()[0] for part in (every, every[:-1], [*every[:-1], silent])
    ]
    assert titles == [
        "# mine:write keeps exactly-once",
        "# mine:write keeps in the scenarios that ran: exactly-once",
        "# mine:write keeps exactly-once (not proven)",
    ]


def test_a_sink_without_an_answer_was_not_tested() -> None:
    page = certificate(Request(GIVEN), [Outcome(KILL, failure="it died")], "")
    assert page.splitlines()[0] == "# mine:write was not tested: no scenario has an answer"
    assert "A reader sees each row once" not in page


def test_a_scenario_fails_in_junit_if_it_breaks_the_required_guarantee() -> None:
    outcomes = [outcome(HEALTHY), outcome(DUP=60)]
    for guarantee, failures in (("exactly-once", "1"), ("at-least-once", "0")):
        suite = ElementTree.fromstring(junit(Request(GIVEN, require=guarantee), outcomes))
        assert suite.get("failures") == failures
        assert suite.get("tests") == "2"


def test_junit_shows_what_xml_cannot_contain() -> None:
    found = ElementTree.fromstring(junit(Request(GIVEN), [Outcome(KILL, failure="\x1b[31mno\x00\udcff")]))
    assert [each.get("message") for each in found.iter("error")] == ["\\x1b[31mno\\x00\\udcff"]
    csv = {**GIVEN, "write": "", "format": "c\x02v", "options": {"sep": "\x01"}, "spark": {"spark.x": "\x03"}}
    (case,) = ElementTree.fromstring(junit(Request(csv), [outcome(HEALTHY)], "\x05")).findall("testcase")[:1]
    assert case.get("classname") == "Spark's format c\\x02v"
    assert "--option 'sep=\\x01'" in case.findtext("system-out", "")


def test_a_scenario_without_an_answer_and_an_end_without_a_certificate_are_errors_in_junit() -> None:
    suite = ElementTree.fromstring(junit(Request(GIVEN), [outcome(HEALTHY), Outcome(KILL, failure="died")], "no Java"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "0", "2")
    errors = {case.get("name"): case.find("error") for case in suite.iter("testcase")}
    assert {name: None if error is None else error.get("message") for name, error in errors.items()} == {
        "healthy": None, "kill-after-call": "died", "oncebench certify": "no Java",
    }  # fmt: skip


def test_every_scenario_has_a_name_of_its_own_and_faults_that_can_be_read() -> None:
    assert len({each.name for each in SCENARIOS}) == len(SCENARIOS)
    for each in SCENARIOS:
        assert [str(parse_fault(fault)) for fault in each.faults] == list(each.faults)
        assert cell_of(each, True, "{}", 3).faulted is not each.healthy


def test_a_streaming_sink_has_the_scenarios_that_need_no_view_of_its_call() -> None:
    names = {each.name for each in chosen(False)}
    assert names < {each.name for each in chosen(True)}
    assert {"healthy", "kill-amid-call", "replay", "random-kills"} <= names
    assert not names & {"kill-after-call", "kill-at-batch-start", "zombie"}


def test_each_failpoint_of_the_sinks_own_becomes_a_scenario() -> None:
    (found,) = of_own_points([("batch-start", 0), ("own-staged", 3), ("mid-write", 3), ("own-staged", 15)])
    assert found.name == "kill-at-own-staged"
    assert str(parse_fault(found.faults[0])) == "own-staged:kill"
    assert cell_of(found, True, "{}", 3).faults == ("own-staged:kill@after=4",)


def test_a_failpoint_of_the_first_batches_acts_in_the_last_of_them() -> None:
    passed = [("own-created", 0), ("own-created", 1), ("own-created", 0), ("own-warm", 9), ("own-late", 10)]
    faults = {each.name: cell_of(each, True, "{}", 3).faults for each in of_own_points(passed)}
    assert faults == {
        "kill-at-own-created": ("own-created:kill@batch=1",),
        "kill-at-own-warm": ("own-warm:kill@batch=9",),
        "kill-at-own-late": ("own-late:kill@after=4",),
    }


def test_a_failpoint_of_the_sinks_own_takes_no_name_of_a_scenario() -> None:
    names = {each.name for each in of_own_points([(f"own-{point}", 12) for point in POINTS])}
    assert not names & {each.name for each in SCENARIOS}
    assert len(names) == len(POINTS)


def test_a_certificate_names_the_scenarios_that_were_not_run() -> None:
    page = certificate(Request(GIVEN), [outcome(HEALTHY)], "")
    assert "not run, so this is not proven: kill-at-batch-start, kill-amid-call, " in page
    none_left = certificate(Request(GIVEN), [outcome(HEALTHY, LOSS=1)], "")
    assert "more scenarios cannot change the answer. These were not run: kill-at-batch-start, " in none_left


def test_a_job_that_the_sink_ended_is_named_although_every_guarantee_is_kept() -> None:
    died = outcome(unasked=2)
    says = "the job ended by itself 2 times: stopped: QueryDied"
    assert result(died) == f"kept: 480 of 480 rows, each once; {says}"
    assert f"- kill-after-call: {says}\n" in certificate(Request(GIVEN), [outcome(HEALTHY), died], "")
    assert "ended by itself" not in result(outcome())
    assert "Ends without a fault" not in certificate(Request(GIVEN), [outcome(HEALTHY)], "")


def test_a_certificate_repeats_the_options_that_decide_its_answer() -> None:
    request = Request(GIVEN, 7, "at-least-once", "mine:plain")
    page, xml = certificate(request, [outcome(HEALTHY), outcome(DUP=60)], ""), junit(request, [outcome(DUP=60)])
    whole = "oncebench certify mine:write --reader mine:read --require at-least-once"
    assert f"all scenarios again:\n\n    {whole} --beside mine:plain --seed 7\n" in page
    assert f"    {whole} --seed 7 --only kill-after-call\n" in page
    assert f"{whole} --seed 7 --only kill-after-call<" in xml


DOUBTS = {
    "weak": ["only 60.0% of the planned events were sent, less than 95%"],
    "undecided": ["the clock was moved"],
    "not_exercised": ["the fault after-commit:kill was not hit"],
}


@pytest.mark.parametrize("kind", list(DOUBTS))
def test_open_questions_leave_a_weaker_guarantee_unproven_where_a_stronger_one_is_broken(kind: str) -> None:
    found = outcome(DUP=60)
    doubted = Outcome(KILL, {**found.report, "open_questions": {kind: DOUBTS[kind]}})
    outcomes = [outcome(HEALTHY), doubted]
    assert strongest(outcomes) == "at-least-once"
    assert not proven(outcomes)
    assert not proven(outcomes, "at-least-once")
    assert [bool(doubted.broken(guarantee)) for guarantee in STRENGTH] == [True, False, True]
    assert f"not tested for at-least-once: {DOUBTS[kind][0]}" in result(doubted)
    page = certificate(Request(GIVEN), outcomes, "")
    assert "| kill-after-call | the job is killed | broken | not tested | broken |" in page
    assert f"- kill-after-call: not tested for at-least-once: {DOUBTS[kind][0]}" in page
    for guarantee, errors in (("exactly-once", "0"), ("at-least-once", "1")):
        suite = ElementTree.fromstring(junit(Request(GIVEN, require=guarantee), outcomes))
        assert suite.get("errors") == errors


def test_rows_that_wait_for_a_transaction_leave_a_weaker_guarantee_unproven() -> None:
    assert not proven([outcome(HEALTHY), outcome(DUP=60, PEND=20)])


def far(code: str, guarantee: str, rows: int) -> Outcome:
    found = outcome(**{code: 900})
    return Outcome(KILL, {**found.report, "excuses": {guarantee: {"missing": {code: rows} if rows else {}}}})


@pytest.mark.parametrize(("code", "weaker"), [("LOSS", "at-most-once"), ("DUP", "at-least-once")])
def test_rows_that_no_failure_touched_break_a_weaker_guarantee(code: str, weaker: str) -> None:
    assert strongest([outcome(HEALTHY), far(code, weaker, 0)]) == weaker
    broken = far(code, weaker, 840)
    assert strongest([outcome(HEALTHY), broken]) == NONE
    says = f"no failure touched 840 of the rows of {code}, so {weaker} is broken too"
    assert result(broken).endswith(says)
    assert says in certificate(Request(GIVEN), [broken], "")


def test_a_fault_that_found_no_row_names_the_reason_of_its_scenario() -> None:
    (amid,) = [each for each in SCENARIOS if each.name == "kill-amid-write"]
    report = {"verdict": "vacuous", "reasons": ["the fault after-prepare:kill@after=4 was not hit"], "anomalies": {}}
    missed = Outcome(amid, report)
    assert missed.undecided == f"{report['reasons'][0]}; {amid.no_hit}"
    assert missed.unanswered("at-most-once") == missed.undecided


def test_a_row_that_is_gone_names_the_reader_as_a_possible_cause() -> None:
    page = certificate(Request(GIVEN), [outcome(INCO=1)], "")
    assert "- INCO: check that each call of the reader returns the rows of one moment." in page
