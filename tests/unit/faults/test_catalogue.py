"""Each action: where it can injection, and with which reason it is refused elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncebench.delivery.failpoints import KILL, POINTS, parse_fault
from oncebench.errors import UserError
from oncebench.faults import catalogue
from oncebench.faults.catalogue import FAULTS, FaultKind, checked_fault, why_malformed, why_not
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.sinks.registry import SINKS, suite_sinks
from tests import ROOT


@pytest.mark.parametrize("kind", FAULTS.values(), ids=FAULTS)
def test_every_action_is_documented_and_checks_its_seconds(kind: FaultKind) -> None:
    point = next(point for point in POINTS if point in kind.points)
    fault = f"{point}:{kind.name}{':5' if kind.timed else ''}"
    assert checked_fault(fault) == fault
    wrong = why_malformed(parse_fault(f"{point}:{kind.name}{'' if kind.timed else ':5'}"))
    assert wrong is not None
    assert "seconds" in wrong
    assert f"`:{kind.name}" in (ROOT / "docs" / "faults.md").read_text()


def test_an_unknown_action_is_refused_with_the_available_ones() -> None:
    with pytest.raises(UserError, match="unknown fault action 'burn'; available: kill, stop, ") as refused:
        checked_fault("after-commit:burn")
    assert refused.value.exit_code == 2
    with pytest.raises(UserError, match=r"unknown fault action 'kil' \(did you mean kill\?\); available"):
        checked_fault("after-commit:kil")


@pytest.mark.parametrize(
    ("fault", "sink", "variant", "ours", "says"),
    [
        ("after-commit:kill", "kafka", "two-phase", None, None),
        ("after-commit:kill-broker", "files-jsonl", "two-phase", None, None),
        ("after-commit:kill-broker", "kafka", "two-phase", frozenset(), "the kafka of this run is not ours to break"),
        ("after-commit:kill-postgres", "kafka", "two-phase", None, "a run of sink kafka has no postgres"),
        ("after-commit:kill-postgres", "postgres", "upsert", frozenset({"kafka"}), "is not ours to break"),
        ("after-commit:kill-postgres", "postgres", "upsert", None, None),
        ("after-prepare:hijack", "files-jsonl", "two-phase", None, "holds no Kafka transactions"),
        ("after-prepare:hijack", "kafka", "native", None, "holds no Kafka transactions"),
        ("after-prepare:hijack", "kafka", "idempotent", None, None),
        ("after-decision:hijack", "kafka", "idempotent", None, "no transaction open at after-decision"),
        ("after-decision:hijack", "kafka", "two-phase", None, None),
        ("before-prepare:lose-answer", "kafka", "acknowledged", None, None),
        ("before-prepare:lose-answer", "kafka", "claim", None, "waits for no answer of Kafka's"),
        ("after-decision:late-commit:3", "kafka", "idempotent", None, None),
        ("mid-write:kill-worker", "kafka", "two-phase", None, None),
        ("mid-write:kill-worker", "kafka", "native", None, "no worker passes mid-write there"),
        ("mid-write:kill-worker", "delta", "idempotent", None, "no worker passes mid-write there"),
        ("after-commit:kill-worker", "kafka", "two-phase", None, "kill-worker acts at: mid-write, before-prepare"),
        ("after-commit-log:repartition", "kafka", "two-phase", None, "repartition acts at: batch-start"),
        ("after-commit:cut-link:3", "delta", "idempotent", None, None),
        ("after-commit:cut-link:3", "delta", "idempotent", frozenset(), "the kafka of this run is not ours to break"),
        ("after-commit:late-commit:3", "delta", "idempotent", None, "holds no Kafka transactions"),
        ("after-commit:lose-postgres-answer", "kafka", "two-phase", None, "a run of sink kafka has no postgres"),
        ("mid-write:fill-output:5", "kafka", "two-phase", None, "a run of sink kafka has no output folder"),
        ("mid-write:fill-broker:5", "delta", "idempotent", frozenset(), "the kafka of this run is not ours to break"),
        ("after-commit:kill-executor", "delta", "native", None, None),
    ],
)
def test_an_impossible_fault_is_refused_with_the_reason(
    fault: str, sink: str, variant: str, ours: frozenset[str] | None, says: str | None
) -> None:
    support = next(support for support in SINKS[sink].supports if support.variant == variant)
    reason = why_not(parse_fault(fault), suite_sinks()[sink], support, ours)
    assert (reason is None) == (says is None)
    cell = Cell(sink, support.guarantee, variant, faults=(fault,))
    if says is None:
        require_possible([cell], ours)
    else:
        assert says in str(reason)
        with pytest.raises(UserError, match=f"fault {fault}: ") as refused:
            require_possible([cell], ours)
        assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("fault", "sink", "variant", "brokers", "says"),
    [
        ("after-prepare:kill-output-leader", "kafka", "two-phase", 3, None),
        ("after-prepare:kill-output-leader", "kafka", "claim", 3, None),
        ("after-prepare:kill-output-leader", "kafka", "two-phase", 1, "no other to take over. Give --brokers 3"),
        ("after-prepare:kill-output-leader", "files-jsonl", "two-phase", 3, "a run of sink files-jsonl has no output"),
        ("after-prepare:stop-input-leader:5", "files-jsonl", "two-phase", 3, None),
        ("after-prepare:kill-transaction-coordinator", "kafka", "acknowledged", 3, "holds no Kafka transactions"),
        ("after-prepare:bounce-group-coordinator", "kafka", "idempotent", 3, None),
        ("mid-commit:rolling-restart", "files-jsonl", "two-phase", 3, None),
        ("before-prepare:refuse-writes:120", "kafka", "idempotent", 3, None),
        ("before-prepare:refuse-writes:120", "kafka", "two-phase", 1, "Give --brokers 3"),
        ("before-prepare:refuse-writes:120", "files-jsonl", "two-phase", 3, "a run of sink files-jsonl has no output"),
        ("mid-commit:rolling-restart", "kafka", "two-phase", 1, "Give --brokers 3"),
        ("mid-commit:isolate-input-leader:30", "files-jsonl", "two-phase", 3, None),
        ("mid-commit:isolate-output-leader:30", "kafka", "two-phase", 1, "Give --brokers 3"),
        ("mid-commit:isolate-output-leader:30", "files-jsonl", "two-phase", 3, "a run of sink files-jsonl has no outp"),
        ("mid-commit:kill-broker", "kafka", "two-phase", 3, None),
        ("mid-commit:cut-link:3", "kafka", "two-phase", 3, "in front of one broker only. Leave out --brokers"),
        ("mid-commit:fill-broker:3", "kafka", "two-phase", 3, "a broker that is alone. Leave out --brokers"),
    ],
)
def test_a_fault_says_how_many_brokers_it_needs(
    fault: str, sink: str, variant: str, brokers: int, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "cannot_mount", lambda: None)
    support = next(support for support in SINKS[sink].supports if support.variant == variant)
    cell = Cell(sink, support.guarantee, variant, faults=(fault,), brokers=brokers)
    if says is None:
        require_possible([cell])
        return
    with pytest.raises(UserError, match=f"fault {fault}: .*{says}") as refused:
        require_possible([cell])
    assert refused.value.exit_code == 2


REPLACING = {f"{word}-{log}" for word in ("cut", "empty", "lose") for log in ("offsets", "commits")}


@pytest.mark.parametrize("name", sorted(REPLACING | {"roll-back", "lose-checkpoint"}))
def test_a_checkpoint_on_a_small_disk_is_not_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "cannot_mount", lambda: None)
    damage = Cell("files-jsonl", "exactly-once", "two-phase", faults=(f"after-commit:{name}",))
    for full, possible in (("mid-write:fill-output:5", True), ("mid-write:fill-checkpoint:5", False)):
        for faults in ((full, *damage.faults), (*damage.faults, full)):
            if possible:
                require_possible([replace(damage, faults=faults)])
                continue
            with pytest.raises(
                UserError, match=f"fault after-commit:{name}: under {full} the checkpoint is"
            ) as refused:
                require_possible([replace(damage, faults=faults)])
            assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("link", "possible"),
    [
        ("after-commit:lose-postgres-answer", False),
        ("after-commit:cut-link:3", True),
        ("after-commit:kill-postgres", True),
    ],
)
def test_session_faults_are_refused_behind_a_proxy(link: str, possible: bool) -> None:
    kill = "mid-write:kill-session"
    for faults in ((link, kill), (kill, link)):
        cell = Cell("postgres", "exactly-once", "two-phase", faults=faults)
        if possible:
            require_possible([cell])
            continue
        with pytest.raises(UserError, match=f"fault {kill}: under {link} the pipeline reaches postgres through") as no:
            require_possible([cell])
        assert no.value.exit_code == 2


def test_only_kill_is_done_by_the_pipeline_itself() -> None:
    assert [name for name, kind in FAULTS.items() if kind.inject is None] == [KILL]


@pytest.mark.parametrize(("point", "possible"), [("after-prepare", False), ("mid-commit", True)])
def test_a_task_that_locks_its_database_is_never_a_zombie(point: str, possible: bool) -> None:
    why = why_not(parse_fault(f"{point}:zombie"), suite_sinks()["sqlite"], SINKS["sqlite"].supports[0])
    assert (why is None) == possible
    assert possible or "holds the lock" in str(why)
