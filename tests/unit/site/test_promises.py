"""The published matrix: the worst of repeats, with the runs behind it, and nothing that a table would not say."""

from __future__ import annotations

from typing import Any

from oncebench.report.configuration import configurations_of
from oncebench.report.outcome import ORDER
from oncebench.scenario.fault_matrix import RANDOM_KILL
from oncebench.site import promises
from oncebench.site.pack import Texts
from oncebench.site.promises import HEALTHY, NO_FAULT, OTHER, Matrix, Place, matrix_of
from tests.unit.scenario.test_fault_matrix import fault, report

WAY = ("kafka", "exactly-once", "v")
KILL = Place(WAY, "kills", "after-prepare:kill")


def with_rows(made: dict[str, Any], lost: int = 0, duplicated: int = 0, **changes: Any) -> dict[str, Any]:
    return {**made, "rows": {"visible": 10, "lost": lost, "duplicated": duplicated}, **changes}


def matrix(*reports: dict[str, Any]) -> Matrix:
    return matrix_of([with_rows(each) if "lost" not in each["rows"] else each for each in reports])


def packed(found: Matrix) -> dict[str, Any]:
    texts = Texts()
    told = promises.as_json(found, list(dict.fromkeys(place.way for place in found)), texts)
    return {**told, "text": texts.as_json()}


def text(told: dict[str, Any], number: int) -> str:
    return " ".join(told["text"]["words"][word] for word in told["text"]["texts"][number])


def test_a_cell_is_the_worst_of_its_repeats_and_counts_all_of_them() -> None:
    kept, broken = fault("after-prepare:kill"), fault("after-prepare:kill", duplicated=3)
    told = packed(matrix(report(kept), report(broken, verdict="broken", codes=("DUP",)), report(kept)))
    cells = told["cells"]
    assert [ORDER[word] for word in cells["word"]] == ["broken"]
    assert (text(told, cells["codes"][0]), cells["lost"], cells["doubled"]) == ("DUP", [0], [3])
    entries = cells["entries"][0]
    assert [entries[at] for at in range(0, len(entries), 5)] == [0, 1, 2]
    assert [ORDER[entries[at + 1]] for at in range(0, len(entries), 5)] == ["kept", "broken", "kept"]


def test_the_command_of_a_cell_is_its_worst_runs_with_its_own_fault_alone() -> None:
    chain = fault("mid-write:kill"), fault("after-prepare:kill@after=2", lost=20)
    told = packed(matrix(report(*chain, verdict="broken", codes=("LOSS",))))
    (command,) = (text(told, told["cells"]["command"][at]) for at, lost in enumerate(told["cells"]["lost"]) if lost)
    assert "--fault after-prepare:kill" in command
    assert "mid-write" not in command


def test_faults_stand_under_their_family_and_strange_ones_under_other() -> None:
    found = matrix(report(fault("after-prepare:kill")), report(fault("after-commit:stop:7")), report())
    assert [(place.family, place.fault) for place in found] == [
        (HEALTHY, NO_FAULT),
        ("kills", "after-prepare:kill"),
        (OTHER, "after-commit:stop:7"),
    ]
    assert promises.families_of(found) == {
        HEALTHY: [NO_FAULT], "kills": ["after-prepare:kill"], OTHER: ["after-commit:stop:7"]
    }  # fmt: skip


def test_a_healthy_run_that_broke_its_promise_is_broken_in_the_matrix_too() -> None:
    broken = with_rows(report(verdict="broken", codes=("DUP",)), duplicated=4)
    told = packed(matrix(report(), broken))
    assert ORDER[told["cells"]["word"][0]] == "broken"
    assert told["cells"]["doubled"] == [4]


def test_an_older_report_tells_its_codes_by_its_anomalies() -> None:
    broken = with_rows(report(verdict="broken"), lost=4, anomalies={"LOSS": 4})
    del broken["broken_by"]
    assert promises.codes_of(matrix(broken)[Place(WAY, HEALTHY, NO_FAULT)]) == "LOSS"


def test_what_was_interrupted_is_no_cell() -> None:
    missed = report(fault("after-prepare:kill", hit=False))
    assert list(matrix(report(fault("after-prepare:kill")), {**missed, "interrupted": True})) == [KILL]
    word = promises.worst(matrix(report(fault("after-prepare:kill")), missed)[KILL]).cell.outcome
    assert word == "vacuous"  # and would be this if it were one


def test_entries_name_the_run_that_they_come_from_whatever_was_left_out_before_it() -> None:
    first = {**report(fault("after-prepare:kill")), "interrupted": True}
    found = matrix(first, report(), report(fault("after-prepare:kill")))
    assert [entry.run for entry in found[KILL]] == [2]


def test_a_row_that_never_shows_what_it_allows_is_vacuous_as_in_the_tables() -> None:
    tight = report(fault("after-commit:kill", duplicated=5), guarantee="at-least-once")
    loose = report(fault("after-commit:kill"), guarantee="at-least-once")
    assert set(promises.words_of(matrix(tight)).values()) == {"kept"}
    assert set(promises.words_of(matrix(loose)).values()) == {"vacuous"}


def test_a_family_is_summed_up_by_its_worst_cell_and_how_many_are_like_it() -> None:
    chain = fault("mid-write:kill"), fault("after-prepare:kill@after=2", lost=20), fault("mid-commit:kill@after=2")
    told = packed(matrix(report(*chain, verdict="broken", codes=("LOSS",))))
    sums = told["sums"]
    assert (ORDER[sums["word"][0]], sums["alike"], sums["cells"], sums["lost"]) == ("broken", [1], [3], [20])


def test_of_each_row_the_faults_that_have_no_point_in_it_are_told() -> None:
    texts = ("mid-write:kill", "mid-write:kill-worker@after=2", "after-prepare:hijack@after=2")
    chains = [report(*map(fault, texts), variant=variant) for variant in ("two-phase", "native")]
    chains[1]["cell"]["guarantee"] = "at-least-once"
    strange = report(fault("mid-commit:hijack"), variant="two-phase")
    told = packed(matrix(*chains, strange, report()))
    faults = [name for family in told["families"] for name in family["faults"]]
    assert faults == ["none", "mid-write:kill", "mid-write:kill-worker", "after-prepare:hijack", "mid-commit:hijack"]
    by_way = dict(zip(("v", "native", "two-phase"), told["pointless"], strict=True))
    names = {way: [faults[at] for at in pointless] for way, pointless in by_way.items()}
    assert names == {"v": [], "native": ["mid-write:kill-worker", *faults[3:]], "two-phase": []}


def test_random_kills_are_one_cell_that_answers_for_the_run() -> None:
    made = with_rows(report(fault("mid-write:kill")), duplicated=2)
    made["cell"] = {**made["cell"], "faults": [], "random_kills": 1}
    made["faults"] = [{**made["faults"][0], "fault": RANDOM_KILL}]
    ((place, entries),) = matrix_of([made]).items()
    assert (place.family, place.fault, entries[0].cell.duplicated) == ("random", "random", 2)


def test_what_is_broken_on_purpose_comes_last_and_says_what_it_shows() -> None:
    made = [
        {"cell": {"sink": sink, "guarantee": "exactly-once", "variant": variant}}
        for sink, variant in (("broken-files", "final-names"), ("sqlite", "idempotent"), ("delta", "native"))
    ]
    assert list(configurations_of(made).items()) == [
        (("delta", "exactly-once", "native"), ""),
        (("sqlite", "exactly-once", "idempotent"), ""),
        (("broken-files", "exactly-once", "final-names"), "DUP"),
    ]


def test_a_text_comes_out_as_it_went_in() -> None:
    texts = Texts()
    told = ["", " ", "a  b", "oncebench run --fault 'x y'", "a  b", "<script>"]
    numbers = [texts.add(each) for each in told]
    made = texts.as_json()
    assert [" ".join(made["words"][word] for word in made["texts"][number]) for number in numbers] == told
    assert numbers[2] == numbers[4]


def test_the_try_of_a_rate_is_no_cell_unless_it_broke_its_promise() -> None:
    tried = {**report(), "verdict": "unknown", "probe": True}
    assert promises.words_of(matrix(report(), tried)) == {WAY: "kept"}
    assert list(matrix(tried)) == []
    broken = with_rows(report(verdict="broken", codes=("DUP",)), duplicated=4, probe=True)
    assert promises.words_of(matrix(report(), broken)) == {WAY: "broken"}
