"""The outcomes of the fault matrix, in tables and JUnit XML."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.delivery.failpoints import parse_fault
from oncebench.report.comparisons import random_kills
from oncebench.report.outcome import outcome_of
from oncebench.report.tables import fault_matrix
from oncebench.scenario.cell import Cell
from oncebench.scenario.matrix.families import RANDOM

KILLS = ("faults", "--sink", "kafka", "--only", "two-phase", "--seeds", "1", "--family", "kills")


def fault(text: str, lost: int = 0, duplicated: int = 0, hit: bool = True, noted: tuple[str, ...] = ()) -> Any:
    point = parse_fault(text).point
    return {"fault": text, "point": point, "batch": 6, "hit": hit, "lost": lost, "duplicated": duplicated,
            "noted": list(noted)}  # fmt: skip


def report(*faults: Any, guarantee: str = EXACTLY_ONCE, verdict: str = "kept", codes: tuple[str, ...] = (),
           variant: str = "v") -> Any:  # fmt: skip
    texts = [each["fault"] for each in faults]
    variant = {AT_MOST_ONCE: "claim"}.get(guarantee, variant)
    cell = Cell("kafka", guarantee, variant, faults=tuple(texts), rate=300.0)
    return {
        "cell": {"sink": "kafka", "guarantee": guarantee, "variant": variant, "faults": texts, "random_kills": 0},
        "verdict": verdict, "broken_by": list(codes), "reasons": ["because"], "rows": {"visible": 10},
        "faults": list(faults), "seed": 4, "reproduce": cell.reproduce(), "config": cell.as_json(),
        "interrupted": False,
    }  # fmt: skip


def words(*reports: Any) -> dict[str, str]:
    return {cell.fault: cell.text for cell in fault_matrix.cells_of(reports)}


def test_a_fault_is_charged_only_with_its_own_batch() -> None:
    broken = report(fault("mid-write:kill"), fault("after-commit:kill@after=2", duplicated=20), verdict="broken",
                    codes=("DUP",))  # fmt: skip
    assert words(broken) == {"mid-write:kill": "kept", "after-commit:kill": "broken (DUP)"}


def test_an_anomaly_without_a_batch_breaks_every_cell() -> None:
    broken = report(fault("mid-write:kill"), fault("after-commit:kill@after=2"), verdict="broken", codes=("CORR",))
    assert set(words(broken).values()) == {"broken (CORR)"}


def test_an_old_checkpoint_is_a_limit_of_at_most_once_only() -> None:
    def outcome(text: str, guarantee: str, code: str = "DUP") -> str:
        charged = {"DUP": "duplicated", "LOSS": "lost"}[code]
        (cell,) = fault_matrix.cells_of(
            [report(fault(text, **{charged: 20}), guarantee=guarantee, verdict="broken", codes=(code,))]
        )
        return cell.text

    for text in ("after-commit:roll-back", "after-commit:lose-checkpoint"):
        assert outcome(text, AT_MOST_ONCE) == "limit (DUP)"
        assert outcome(text, EXACTLY_ONCE) == "broken (DUP)"
        assert outcome(text, AT_LEAST_ONCE, "LOSS") == "broken (LOSS)"
    assert outcome("after-commit:kill", AT_MOST_ONCE) == "broken (DUP)"


def test_a_lost_checkpoint_is_a_limit_of_native_exactly_once_only() -> None:
    lost = fault("after-commit:lose-checkpoint", duplicated=20)
    for variant, word in (("native", "limit (DUP)"), ("idempotent", "broken (DUP)")):
        (cell,) = fault_matrix.cells_of([report(lost, verdict="broken", codes=("DUP",), variant=variant)])
        assert cell.text == word


def test_a_killed_postgresql_is_a_limit_of_at_most_once_only() -> None:
    for text in ("after-prepare:kill-postgres", "mid-write:kill-session"):
        for guarantee, word in ((AT_MOST_ONCE, "limit (INCO)"), (AT_LEAST_ONCE, "broken (INCO)")):
            (cell,) = fault_matrix.cells_of(
                [report(fault(text), guarantee=guarantee, verdict="broken", codes=("INCO",))]
            )
            assert cell.text == word
    (cell,) = fault_matrix.cells_of(
        [report(fault("mid-write:kill"), guarantee=AT_MOST_ONCE, verdict="broken", codes=("INCO",))]
    )
    assert cell.text == "broken (INCO)"


def test_an_uncharged_anomaly_breaks_every_cell() -> None:
    broken = report(fault("mid-write:kill"), fault("after-commit:kill@after=2"), verdict="broken", codes=("DUP",))
    assert set(words(broken).values()) == {"broken (DUP)"}


def test_a_duplicate_in_a_quiet_batch_breaks_every_cell() -> None:
    faults = (fault("mid-write:kill"), fault("after-commit:kill@after=2", duplicated=20))
    broken = report(*faults, verdict="broken", codes=("DUP",)) | {"uncharged": {"lost": 0, "duplicated": 20}}
    assert set(words(broken).values()) == {"broken (DUP)"}
    broken["uncharged"] = {"lost": 20, "duplicated": 0}  # allowed, otherwise the codes would have it
    assert words(broken)["mid-write:kill"] == "kept"


def test_a_single_retroactive_fault_explains_a_quiet_batch() -> None:
    back = fault("after-commit:roll-back")
    broken = report(back, guarantee=AT_MOST_ONCE, verdict="broken", codes=("DUP",))
    broken["uncharged"] = {"lost": 0, "duplicated": 20}  # rows of the two batches that were written again
    assert words(broken) == {"after-commit:roll-back": "limit (DUP)"}
    broken = report(back, fault("mid-write:kill@after=2"), guarantee=AT_MOST_ONCE, verdict="broken", codes=("DUP",))
    broken["uncharged"] = {"lost": 0, "duplicated": 20}
    assert words(broken) == {"after-commit:roll-back": "broken (DUP)", "mid-write:kill": "broken (DUP)"}


def test_other_faults_do_not_explain_a_quiet_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncebench.report.outcome.LIMITS", {("kill", AT_MOST_ONCE, "claim"): {"DUP": "as known"}})
    killed = fault("mid-write:kill", duplicated=20)
    broken = report(killed, guarantee=AT_MOST_ONCE, verdict="broken", codes=("DUP",))
    assert words(broken) == {"mid-write:kill": "limit (DUP)"}
    broken["uncharged"] = {"lost": 0, "duplicated": 20}
    assert words(broken) == {"mid-write:kill": "broken (DUP)"}


@pytest.mark.parametrize(
    ("guarantee", "elsewhere", "spared", "seen", "code"),
    [
        (AT_LEAST_ONCE, "after-commit:kill", "after-commit-log:kill@after=2", {"duplicated": 20}, "DUP"),
        (AT_LEAST_ONCE, "after-commit:kill", "batch-start:kill@after=2", {"duplicated": 20}, "DUP"),
        (AT_MOST_ONCE, "after-decision:kill", "after-commit:kill@after=2", {"lost": 20}, "LOSS"),
    ],
)
def test_an_allowed_anomaly_is_broken_at_a_harmless_point(
    guarantee: str, elsewhere: str, spared: str, seen: dict[str, int], code: str
) -> None:
    found = words(report(fault(elsewhere, **seen), fault(spared, **seen), guarantee=guarantee))
    point = spared.split("@", maxsplit=1)[0]
    assert found == {elsewhere: "kept", point: f"broken ({code}, where nothing is at stake)"}
    assert words(report(fault(elsewhere, **seen), fault(spared), guarantee=guarantee))[point] == "kept"


def test_a_limit_covers_no_other_anomaly() -> None:
    both = report(fault("after-commit:roll-back", duplicated=20), guarantee=AT_MOST_ONCE, verdict="broken",
                  codes=("DUP", "CORR"))  # fmt: skip
    assert words(both) == {"after-commit:roll-back": "broken (CORR DUP)"}


def test_without_visible_rows_nothing_is_kept() -> None:
    assert words(report(fault("mid-write:kill")) | {"rows": {"visible": 0}}) == {"mid-write:kill": "vacuous"}


def test_only_the_fault_without_effect_is_vacuous() -> None:
    one = fault("mid-write:kill") | {"untested": ["batch 6 was not run again after the kill at mid-write"]}
    found = words(report(one, fault("after-commit:kill@after=2"), verdict="vacuous"))
    assert found == {"mid-write:kill": "vacuous", "after-commit:kill": "kept"}


def test_a_fault_without_effect_is_broken_by_its_own_batch() -> None:
    idle = fault("mid-write:kill-worker", duplicated=20) | {"untested": ["it found nothing to act on"]}
    broken = report(idle, fault("after-commit:kill@after=2"), verdict="broken", codes=("DUP",))
    assert words(broken) == {"mid-write:kill-worker": "broken (DUP)", "after-commit:kill": "kept"}


def test_without_an_effective_fault_the_broken_run_breaks_its_cells() -> None:
    missed, acted = fault("mid-write:kill", hit=False), fault("after-commit:kill@after=2")
    for codes in (("CORR",), ("DUP",)):
        assert words(report(missed, verdict="broken", codes=codes)) == {"mid-write:kill": f"broken ({codes[0]})"}
        found = words(report(missed, acted, verdict="broken", codes=codes))
        assert found == {"mid-write:kill": "vacuous", "after-commit:kill": f"broken ({codes[0]})"}


def test_a_broken_run_with_a_missed_fault_fails_in_junit() -> None:
    cells = fault_matrix.cells_of([report(fault("mid-write:kill", hit=False), verdict="broken", codes=("LOSS",))])
    suite = ElementTree.fromstring(fault_matrix.junit(cells))
    assert {name: suite.get(name) for name in ("failures", "skipped")} == {"failures": "1", "skipped": "0"}


def test_a_limit_needs_an_effective_fault_for_every_code() -> None:
    known = fault("after-prepare:kill-postgres")
    idle = fault("mid-write:stop:5@after=2", duplicated=20) | {"untested": ["the pipeline died before it stood still"]}
    both = report(known, idle, guarantee=AT_MOST_ONCE, verdict="broken", codes=("INCO", "DUP"))
    assert words(both) == {"after-prepare:kill-postgres": "limit (INCO)", "mid-write:stop:5": "broken (DUP)"}
    assert outcome_of(both) == "broken"
    quiet = report(known, idle | {"duplicated": 0}, guarantee=AT_MOST_ONCE, verdict="broken", codes=("INCO",))
    assert (words(quiet)["mid-write:stop:5"], outcome_of(quiet)) == ("vacuous", "limit")
    for text, code in (("after-prepare:kill-postgres", "INCO"), ("after-commit:lose-checkpoint", "DUP")):
        nothing = fault(text) | {"untested": ["it did not act to its end"]}
        alone = report(nothing, guarantee=AT_MOST_ONCE, verdict="broken", codes=(code,))
        assert (words(alone), outcome_of(alone)) == ({text: f"broken ({code})"}, "broken")


def test_a_vacuous_run_has_no_kept_cell() -> None:
    found = words(report(fault("mid-write:kill"), fault("after-commit:kill@after=2"), verdict="vacuous"))
    assert set(found.values()) == {"vacuous"}


def test_only_hit_faults_are_counted() -> None:
    reports = [report(fault("mid-write:kill"), fault("after-commit:kill@after=2", hit=False), verdict="vacuous")]
    text = fault_matrix.counted(reports, fault_matrix.cells_of(reports))
    assert text.startswith("1 kills and 0 other faults in 2 cells")


def test_a_missed_or_idle_fault_is_vacuous() -> None:
    found = words(
        report(
            fault("mid-write:kill"),
            fault("mid-commit:kill@after=2", hit=False),
            fault("after-prepare:hijack@after=2", noted=("nemesis-idle: no transaction was open",)),
            verdict="vacuous",
        )
    )
    assert found == {"mid-write:kill": "kept", "mid-commit:kill": "vacuous", "after-prepare:hijack": "vacuous"}


def test_an_unknown_run_makes_its_faults_unknown() -> None:
    assert words(report(fault("mid-write:kill"), verdict="unknown")) == {"mid-write:kill": "unknown"}


@pytest.mark.parametrize(("guarantee", "shows"), [(AT_MOST_ONCE, {"lost": 5}), (AT_LEAST_ONCE, {"duplicated": 5})])
def test_a_weaker_guarantee_without_an_anomaly_is_vacuous(guarantee: str, shows: dict[str, int]) -> None:
    quiet = report(fault("mid-write:kill"), guarantee=guarantee)
    telling = report(fault("after-decision:kill", **shows), guarantee=guarantee)
    assert words(quiet) == {"mid-write:kill": "vacuous"}
    assert words(quiet, telling) == {"mid-write:kill": "kept", "after-decision:kill": "kept"}
    assert "kept, 5 " in fault_matrix.markdown(fault_matrix.cells_of([telling]), "kills")


def test_the_worst_repeat_is_displayed() -> None:
    broken = report(fault("mid-write:kill", lost=1), verdict="broken", codes=("LOSS",))
    table = fault_matrix.markdown(fault_matrix.cells_of([report(fault("mid-write:kill")), broken]), "kills")
    assert "broken (LOSS)" in table
    assert "kept" not in table


def test_the_command_of_a_cell_has_only_its_fault() -> None:
    (first, second) = fault_matrix.cells_of([report(fault("mid-write:kill"), fault("after-commit:kill@after=2"))])
    assert first.reproduce.endswith("--rate 300 --sessions 200 --fault mid-write:kill")
    assert second.reproduce.endswith("--rate 300 --sessions 200 --fault after-commit:kill")


def test_junit_has_one_case_per_cell() -> None:
    cells = fault_matrix.cells_of(
        [report(fault("mid-write:kill", lost=1), fault("after-commit:kill@after=2", hit=False), verdict="broken",
                codes=("LOSS",))]
    )  # fmt: skip
    suite = ElementTree.fromstring(fault_matrix.junit(cells))
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "2", "failures": "1", "skipped": "1"
    }  # fmt: skip
    assert [case.get("classname") for case in suite] == ["kafka.exactly-once.v"] * 2


def test_a_report_with_missing_faults_is_vacuous() -> None:
    cut = report(fault("mid-write:kill"), fault("after-commit:kill@after=2"))
    del cut["faults"][1]
    assert words(cut) == {"?": "vacuous", "mid-write:kill": "kept"}


def killed_at_random(*points: str | None, asked: int | None = None, verdict: str = "kept") -> Any:
    made = report(verdict=verdict, codes=("DUP",) if verdict == "broken" else ())
    made["cell"]["random_kills"] = len(points) if asked is None else asked
    made["rows"] |= {"lost": 0, "duplicated": 20 if verdict == "broken" else 0}
    for point in points:
        made["faults"].append({"fault": "random:kill", "point": point, "batch": point and 3, "hit": True, "lost": 0,
                               "duplicated": 0, "noted": []})  # fmt: skip
    return made


def test_the_random_kills_of_a_run_are_one_cell() -> None:
    assert words(killed_at_random("mid-write", None)) == {"random": "kept"}
    assert words(killed_at_random("mid-write", verdict="broken")) == {"random": "broken (DUP)"}
    assert outcome_of(killed_at_random("mid-write", verdict="broken")) == "broken"
    assert words(killed_at_random("mid-write", asked=2)) == {"random": "vacuous"}
    assert words(killed_at_random("mid-write", asked=2, verdict="broken")) == {"random": "broken (DUP)"}
    found = fault_matrix.cells_of([killed_at_random("mid-write", None)])
    assert "kept" in fault_matrix.markdown(found, RANDOM)
    assert fault_matrix.counted([killed_at_random("mid-write", None)], found).startswith("2 kills and 0 other faults")


def test_each_random_kill_counts_under_the_last_point() -> None:
    reports = [killed_at_random("mid-write", None, "mid-write"), killed_at_random("after-commit")]
    assert random_kills.kills_by_point(reports) == {"mid-write": 2, "start": 1, "after-commit": 1}
    assert "75.0%" in random_kills.markdown(reports)
    assert random_kills.table(reports)[0][3:7] == ("4", "1", "0", "2")  # all, and no kill at batch-start
    assert random_kills.markdown([report(fault("mid-write:kill"))]) == ""


def test_a_row_with_a_broken_run_has_no_bound() -> None:
    reports = [killed_at_random(*["mid-write"] * 10), killed_at_random("after-commit", verdict="broken")]
    assert "%" not in random_kills.markdown(reports)
    assert random_kills.bound(100) == "3.0%"
