"""The comparison of the two auditors: differences are named, and come before any anomaly."""

from __future__ import annotations

import pytest

from oncebench.audit.agreement import Agreement, compare, counts_of
from oncebench.audit.python.audit import audit
from oncebench.audit.verdict import Facts, decide
from tests.unit.audit.audit_world import make_record, make_world


@pytest.mark.parametrize("counts", [{"LOSS": 1}, {}])
def test_a_disagreement_comes_before_any_anomaly(counts: dict[str, int]) -> None:
    found = decide(counts, Facts("exactly-once", untrusted=compare({"DUP": 3}, {"DUP": 2}).reasons))
    assert (found.verdict, found.codes) == ("unknown", {})


def test_a_count_that_only_one_auditor_has_is_compared_with_0() -> None:
    assert compare({"a": 0, "b": 1}, {"c": 2}) == Agreement(3, {"b": (1, 0), "c": (0, 2)})


def test_each_difference_has_its_name_in_a_sentence_and_in_json() -> None:
    found = compare({"LOSS": 1, "DUP": 2}, {"LOSS": 1, "DUP": 3})
    assert found.reasons == ("the two auditors disagree on DUP: Python counts 2, SQL counts 3",)
    assert found.as_json() == {
        "agree": False, "compared": 2, "differ": {"DUP": {"first": 2, "second": 3}}, "trouble": "",
    }  # fmt: skip


def test_two_auditors_that_agree_give_no_reason() -> None:
    found = compare({"LOSS": 1}, {"LOSS": 1})
    assert found.reasons == ()
    assert found.as_json() == {"agree": True, "compared": 1, "differ": {}, "trouble": ""}


def test_an_auditor_that_could_not_count_is_the_only_reason() -> None:
    found = Agreement(3, {"DUP": (2, 3)}, "no such file")
    assert found.reasons == ("the SQL auditor could not count: no such file",)
    assert (found.as_json()["agree"], found.as_json()["trouble"]) == (False, "no such file")


def test_every_count_and_every_kind_has_a_name() -> None:
    findings = audit(make_record(make_world(3, 2, unfinished=1)))
    counts = counts_of(findings)
    assert counts.items() >= {"LOSS": 0, "rows.expected": 40, "sessions.unfinished": 1, "events.in_topic": 299}.items()
    assert counts.items() >= {"LOSS.whole-sessions": 0, "DUP.other-partition": 0, "STALL-LSO.hanging": 0}.items()
    kinds = [anomaly.split for anomaly in findings.anomalies.values()]
    parts = (findings.rows, findings.sessions, findings.events, findings.invalid, *kinds)
    assert len(counts) == len(findings.anomalies) + sum(map(len, parts))


def test_invalid_events_are_counted_by_reason() -> None:
    world = make_world(2, 1)
    table = make_record(world).input.table
    broken = table.set_column(4, table.schema.field(4), [[b"{", *table["value"].to_pylist()[1:]]])
    record = make_record(world)
    found = counts_of(audit(type(record)(**{**vars(record), "input": type(record.input)(broken, True)})))
    assert found["invalid.not-json"] == found["events.invalid"] == 1
