"""The published matrix: each cell has the worst of its runs and names them."""

from __future__ import annotations

from typing import Any, cast

from oncebench.report.configuration import configurations_of
from oncebench.report.outcome import ORDER, outcome_of
from oncebench.report.report import SCHEMA
from oncebench.report.schema import Report
from oncebench.scenario.matrix.families import RANDOM_KILL
from oncebench.site import about
from oncebench.site.faults.matrix import (
    HEALTHY,
    NO_FAULT,
    OTHER,
    Matrix,
    Place,
    as_json,
    codes_of,
    families_of,
    matrix_of,
    outcomes_of,
    worst,
)
from oncebench.site.pack import Texts
from tests.unit.scenario.test_fault_matrix import fault, report

ROW = ("kafka", "exactly-once", "v")
KILL = Place(ROW, "kills", "after-prepare:kill")


def with_rows(made: dict[str, Any], lost: int = 0, duplicated: int = 0, **changes: Any) -> dict[str, Any]:
    return {**made, "rows": {"visible": 10, "lost": lost, "duplicated": duplicated}, **changes}


def matrix(*reports: dict[str, Any]) -> Matrix:
    return matrix_of([with_rows(each) if "lost" not in each["rows"] else each for each in reports])


def packed(found: Matrix) -> dict[str, Any]:
    texts = Texts()
    data = as_json(found, list(dict.fromkeys(place.configuration for place in found)), texts)
    return {**data, "text": texts.as_json()}


def text(data: dict[str, Any], number: int) -> str:
    return " ".join(data["text"]["words"][word] for word in data["text"]["texts"][number])


def test_cell_has_the_worst_outcome_and_counts_all_runs() -> None:
    kept, broken = fault("after-prepare:kill"), fault("after-prepare:kill", duplicated=3)
    data = packed(matrix(report(kept), report(broken, verdict="broken", codes=("DUP",)), report(kept)))
    cells = data["cells"]
    assert [ORDER[word] for word in cells["outcome"]] == ["broken"]
    assert (text(data, cells["codes"][0]), cells["lost"], cells["duplicated"]) == ("DUP", [0], [3])
    entries = cells["entries"][0]
    assert [entries[at] for at in range(0, len(entries), 5)] == [0, 1, 2]
    assert [ORDER[entries[at + 1]] for at in range(0, len(entries), 5)] == ["kept", "broken", "kept"]


def test_rows_of_batches_without_a_fault_count_in_the_only_cell_of_their_run() -> None:
    outside = {"uncharged": {"lost": 0, "duplicated": 740}}
    alone = report(fault("after-commit:lose-checkpoint", duplicated=300)) | outside
    assert packed(matrix(alone))["cells"]["duplicated"] == [1_040]
    two = report(fault("mid-write:kill", duplicated=20), fault("after-commit:kill@after=2", duplicated=40)) | outside
    assert packed(matrix(two))["cells"]["duplicated"] == [20, 40]  # either fault may be the cause
    killed = with_rows(report(fault("mid-write:kill", duplicated=20)), duplicated=760) | outside
    killed["cell"] = {**killed["cell"], "random_kills": 1}
    assert sorted(packed(matrix(killed))["cells"]["duplicated"]) == [
        20,
        760,
    ]  # random kills have every row


def made_about(*reports: dict[str, Any]) -> dict[str, Any]:
    found = matrix(*reports)
    dated = [{"schema": SCHEMA, **report} for report in reports]
    return about.as_json(dated, found, dict.fromkeys((place.configuration for place in found), ""))


def promise(*reports: dict[str, Any]) -> list[str]:
    return list(made_about(*reports)["promises"])


def test_the_cells_with_the_present_protocols_are_counted() -> None:
    kill, cut = (with_rows(report(fault(each))) for each in ("after-commit:kill", "mid-write:cut-link:3"))
    of_two = (
        "At least {} of 2 cells of exactly-once ran with the current protocols, the others perhaps with earlier ones."
    )
    for schemas, expected in (((1, 1), 0), ((2, 3), 1)):
        made = [{**each, "schema": schema} for each, schema in zip((kill, cut), schemas, strict=True)]
        assert made_about(*made)["protocols"] == of_two.format(expected)
    both = [{**kill, "schema": schema} for schema in (1, 3)]  # two runs of one cell
    assert made_about(*both)["protocols"] is None


def test_a_promise_counts_every_row_of_its_runs() -> None:
    outside = {"uncharged": {"lost": 0, "duplicated": 740}}
    lost = with_rows(report(fault("after-commit:lose-checkpoint", duplicated=300)), duplicated=1_040) | outside
    (sentence,) = promise(lost)
    assert sentence == (
        "Exactly-once was kept in 1 of 1 cells with a fault. Rows lost: 0. "
        "Rows duplicated: 1,040 (740 of these in batches without a fault, in runs with lose-checkpoint)."
    )
    chain = fault("mid-write:cut-link:3", duplicated=140), fault("after-prepare:kill@after=2")
    weaker = with_rows(report(*chain, guarantee="at-least-once"), duplicated=200) | {"uncharged": {"duplicated": 60}}
    assert promise(weaker)[0].endswith(
        "Rows duplicated: 200 (allowed; 60 of these in batches without a fault, in runs with cut-link:3, kill)."
    )
    inside = with_rows(report(fault("after-commit:kill", duplicated=40), guarantee="at-least-once"), duplicated=40)
    assert promise(inside)[0].endswith("Rows duplicated: 40 (allowed).")


def test_forbidden_rows_of_known_limits_are_named_as_such() -> None:
    lost = fault("after-commit:lose-checkpoint", duplicated=300)
    limit = with_rows(report(lost, variant="native", verdict="broken", codes=("DUP",)), duplicated=300)
    assert outcome_of(cast("Report", limit)) == "limit"
    (sentence,) = promise(limit)
    assert "(1 limit)" in sentence
    assert sentence.endswith("Rows duplicated: 300 (all in runs with known limits).")
    wrong = with_rows(report(fault("mid-write:kill", duplicated=20), verdict="broken", codes=("DUP",)), duplicated=20)
    assert "known limits" not in promise(limit, wrong)[0], "some of these rows have no known cause"


def test_command_of_a_cell_has_its_own_fault_alone() -> None:
    chain = fault("mid-write:kill"), fault("after-prepare:kill@after=2", lost=20)
    data = packed(matrix(report(*chain, verdict="broken", codes=("LOSS",))))
    (command,) = (text(data, data["cells"]["command"][at]) for at, lost in enumerate(data["cells"]["lost"]) if lost)
    assert "--fault after-prepare:kill" in command
    assert "mid-write" not in command


def test_faults_without_a_family_are_in_other() -> None:
    found = matrix(report(fault("after-prepare:kill")), report(fault("after-commit:stop:7")), report())
    assert [(place.family, place.fault) for place in found] == [
        (HEALTHY, NO_FAULT),
        ("kills", "after-prepare:kill"),
        (OTHER, "after-commit:stop:7"),
    ]
    assert families_of(found) == {
        HEALTHY: [NO_FAULT], "kills": ["after-prepare:kill"], OTHER: ["after-commit:stop:7"]
    }  # fmt: skip


def test_broken_healthy_run_is_broken_in_the_matrix() -> None:
    broken = with_rows(report(verdict="broken", codes=("DUP",)), duplicated=4)
    data = packed(matrix(report(), broken))
    assert ORDER[data["cells"]["outcome"][0]] == "broken"
    assert data["cells"]["duplicated"] == [4]


def test_older_report_takes_codes_from_its_anomalies() -> None:
    broken = with_rows(report(verdict="broken"), lost=4, anomalies={"LOSS": 4})
    del broken["broken_by"]
    assert codes_of(matrix(broken)[Place(ROW, HEALTHY, NO_FAULT)]) == "LOSS"


def test_interrupted_run_is_no_cell() -> None:
    missed = report(fault("after-prepare:kill", hit=False))
    assert list(matrix(report(fault("after-prepare:kill")), {**missed, "interrupted": True})) == [KILL]
    outcome = worst(matrix(report(fault("after-prepare:kill")), missed)[KILL]).cell.outcome
    assert outcome == "vacuous"  # the outcome that the interrupted run would have had


def test_entries_number_runs_among_all_reports() -> None:
    first = {**report(fault("after-prepare:kill")), "interrupted": True}
    found = matrix(first, report(), report(fault("after-prepare:kill")))
    assert [entry.run for entry in found[KILL]] == [2]


def test_row_without_its_allowed_anomaly_is_vacuous() -> None:
    tight = report(fault("after-commit:kill", duplicated=5), guarantee="at-least-once")
    loose = report(fault("after-commit:kill"), guarantee="at-least-once")
    assert set(outcomes_of(matrix(tight)).values()) == {"kept"}
    assert set(outcomes_of(matrix(loose)).values()) == {"vacuous"}


def test_family_sum_counts_cells_with_the_worst_outcome() -> None:
    chain = fault("mid-write:kill"), fault("after-prepare:kill@after=2", lost=20), fault("mid-commit:kill@after=2")
    data = packed(matrix(report(*chain, verdict="broken", codes=("LOSS",))))
    sums = data["sums"]
    assert (ORDER[sums["outcome"][0]], sums["same_outcome"], sums["cells"], sums["lost"]) == ("broken", [1], [3], [20])


def test_faults_that_cannot_occur_are_listed_by_row() -> None:
    texts = ("mid-write:kill", "mid-write:kill-worker@after=2", "after-prepare:hijack@after=2")
    chains = [report(*map(fault, texts), variant=variant) for variant in ("two-phase", "native")]
    chains[1]["cell"]["guarantee"] = "at-least-once"
    strange = report(fault("mid-commit:hijack"), variant="two-phase")
    data = packed(matrix(*chains, strange, report()))
    faults = [name for family in data["families"] for name in family["faults"]]
    assert faults == ["none", "mid-write:kill", "mid-write:kill-worker", "after-prepare:hijack", "mid-commit:hijack"]
    by_variant = dict(zip(("v", "native", "two-phase"), data["not_applicable"], strict=True))
    names = {variant: [faults[at] for at in numbers] for variant, numbers in by_variant.items()}
    assert names == {"v": [], "native": ["mid-write:kill-worker", *faults[3:]], "two-phase": []}


def test_random_kills_are_one_cell() -> None:
    made = with_rows(report(fault("mid-write:kill")), duplicated=2)
    made["cell"] = {**made["cell"], "faults": [], "random_kills": 1}
    made["faults"] = [{**made["faults"][0], "fault": RANDOM_KILL}]
    ((place, entries),) = matrix_of([made]).items()
    assert (place.family, place.fault, entries[0].cell.duplicated) == ("random", "random", 2)


def test_sinks_broken_on_purpose_come_last() -> None:
    made = [
        {"cell": {"sink": sink, "guarantee": "exactly-once", "variant": variant}}
        for sink, variant in (("broken-files", "final-names"), ("sqlite", "idempotent"), ("delta", "native"))
    ]
    assert list(configurations_of(made).items()) == [
        (("delta", "exactly-once", "native"), ""),
        (("sqlite", "exactly-once", "idempotent"), ""),
        (("broken-files", "exactly-once", "final-names"), "DUP"),
    ]


def test_packed_texts_are_unpacked_exactly() -> None:
    texts = Texts()
    texts_in = ["", " ", "a  b", "oncebench run --fault 'x y'", "a  b", "<script>"]
    numbers = [texts.add(each) for each in texts_in]
    made = texts.as_json()
    assert [" ".join(made["words"][word] for word in made["texts"][number]) for number in numbers] == texts_in
    assert numbers[2] == numbers[4]


def test_rate_probe_is_a_cell_only_if_broken() -> None:
    probe = {**report(), "verdict": "unknown", "probe": True}
    assert outcomes_of(matrix(report(), probe)) == {ROW: "kept"}
    assert list(matrix(probe)) == []
    broken = with_rows(report(verdict="broken", codes=("DUP",)), duplicated=4, probe=True)
    assert outcomes_of(matrix(report(), broken)) == {ROW: "broken"}


def test_runs_of_another_workload_are_left_out() -> None:
    windows = report(fault("after-prepare:kill"), verdict="broken", codes=("DUP",)) | {
        "config": {"workload": "windows"}
    }
    sessions = report(fault("after-prepare:kill"))
    assert matrix(sessions, windows) == matrix(sessions)
