"""Claims and decisions: exclusive, durable, and refused where they do not belong."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from oncebench.delivery import journal
from oncebench.delivery.errors import AnotherDriver, OlderDriver, RefusedStart
from oncebench.delivery.journal import KEEP_BATCHES, Identity, checkpoint_id, open_journal

IDENTITY = Identity("orders", "kafka", "exactly-once", "two-phase", 2)


def test_a_claim_is_made_once_and_a_later_driver_finds_it(tmp_path: Path) -> None:
    first = open_journal(tmp_path, IDENTITY)
    assert first.claim(7)
    second = open_journal(tmp_path, IDENTITY)
    assert not second.claim(7)
    assert second.claim(8)


def test_an_older_driver_is_stopped_by_a_younger_one_at_every_step(tmp_path: Path) -> None:
    old = open_journal(tmp_path, IDENTITY)
    open_journal(tmp_path, IDENTITY)
    for step in (old.check_still_ours, lambda: old.claim(1), lambda: old.decide(1, 0, {}), lambda: old.decisions(1)):
        with pytest.raises(AnotherDriver, match="another driver"):
            step()


def test_a_decision_of_another_driver_is_never_replaced(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    journal.decide(3, 0, {"by": 1})
    with pytest.raises(AnotherDriver, match="batch 3 was decided"):
        journal.decide(3, 0, {"by": 2})
    assert [made["by"] for made in journal.decisions(3)] == [1]


def test_a_restart_helps_against_a_late_decision_of_an_older_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_journal(tmp_path, IDENTITY)
    monkeypatch.setattr(old, "check_still_ours", lambda: None)  # it stalls between its check and its entry
    new = open_journal(tmp_path, IDENTITY)
    assert new.decisions(3) == []
    old.decide(3, 0, {})
    with pytest.raises(OlderDriver, match=r"batch 3 was decided late by an older driver, generation 1 .*Start again"):
        new.decide(3, 0, {})
    open_journal(tmp_path, IDENTITY)
    with pytest.raises(AnotherDriver, match="generation-00000003"):
        new.decide(3, 0, {})


def test_a_claim_of_the_same_generation_means_two_drivers(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    assert journal.claim(3)
    with pytest.raises(AnotherDriver):
        journal.claim(3)


def test_an_older_driver_that_reads_late_does_not_take_up_a_younger_ones_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Found by the model in oncebench/protocol_model: it had looked for a younger one, and was stopped before it read.
    late = open_journal(tmp_path, IDENTITY)
    monkeypatch.setattr(late, "check_still_ours", lambda: None)
    open_journal(tmp_path, IDENTITY).decide(3, 0, {"partitions": []})
    with pytest.raises(AnotherDriver, match="generation 2"):
        late.decisions(3)


def test_decisions_come_in_the_order_of_their_attempts(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    for attempt in range(3):
        journal.decide(5, attempt, {"n": attempt})
    assert [made["n"] for made in journal.decisions(5)] == [0, 1, 2]
    assert journal.newest_decision() == 5


def test_prepared_work_says_whether_spark_has_finished_its_batch(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    for batch in (4, 5):
        journal.decide(
            batch, 0, {"partitions": [{"partition": 1, "rows": 1, "digest": "", "prepared": {"name": f"of {batch}"}}]}
        )
    for newest, finished in ((-1, False), (4, False), (5, True), (6, True)):
        entry = {"name": "of 5", "batch": 5, "partition": 1, "finished": finished}
        assert journal.newest_prepared(newest) == [entry]


@pytest.mark.parametrize(
    ("field", "value"),
    [("sink_id", "other"), ("partitions", 3), ("guarantee", "at-most-once"), ("variant", "idempotent"), ("sink", "x")],
)
def test_a_checkpoint_of_something_else_is_refused_with_what_to_do(tmp_path: Path, field: str, value: object) -> None:
    open_journal(tmp_path, IDENTITY)
    with pytest.raises(RefusedStart, match=rf"{field} .*new checkpoint, sink_id and output"):
        open_journal(tmp_path, replace(IDENTITY, **{field: value}))


def test_a_refused_start_does_not_stop_the_driver_that_runs(tmp_path: Path) -> None:
    running = open_journal(tmp_path, IDENTITY)
    with pytest.raises(RefusedStart):
        open_journal(tmp_path, replace(IDENTITY, partitions=3))
    running.check_still_ours()


def test_a_checkpoint_with_batches_and_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    with pytest.raises(RefusedStart, match="no journal"):
        open_journal(tmp_path, IDENTITY)


def test_what_a_death_left_half_written_is_no_entry_and_is_cleaned(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    half = journal.folder / ".decision-000000004.0.json.abc"
    half.write_text('{"batch"')
    again = open_journal(tmp_path, IDENTITY)
    assert again.decisions(4) == []
    os.utime(half, (0, 0))
    open_journal(tmp_path, IDENTITY)
    assert not half.exists()


def test_another_starters_temporary_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second start must not end the first one with FileNotFoundError.

    It comes between the first one's write and its link.
    """
    journal = open_journal(tmp_path, IDENTITY)
    link = os.link

    def overtaken(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        open_journal(tmp_path, IDENTITY)
        link(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    with pytest.raises(AnotherDriver):
        journal.decide(4, 0, {})


def test_the_folder_is_listed_only_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = open_journal(tmp_path, IDENTITY)
    os.utime(ours.folder, (1, 1))  # long ago
    ours.check_still_ours()
    listed: list[Path] = []
    iterdir = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: (listed.append(path), iterdir(path))[1])
    for _ in range(3):
        ours.check_still_ours()
    assert listed == []
    open_journal(tmp_path, IDENTITY)
    with pytest.raises(AnotherDriver):
        ours.check_still_ours()


def test_a_change_within_the_time_stamps_step_is_not_missed(tmp_path: Path) -> None:
    ours = open_journal(tmp_path, IDENTITY)
    ours.check_still_ours()
    stamp = ours.folder.stat().st_mtime_ns
    open_journal(tmp_path, IDENTITY)
    os.utime(ours.folder, ns=(stamp, stamp))  # as if both fell into one step
    with pytest.raises(AnotherDriver):
        ours.check_still_ours()


def test_a_journal_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    """It calls the guarantee `delivery`, and its digests are of another kind."""
    journal = open_journal(tmp_path, IDENTITY)
    recorded = json.loads((journal.folder / "identity.json").read_text())
    recorded["delivery"] = recorded.pop("guarantee")
    (journal.folder / "identity.json").write_text(json.dumps(recorded))
    assert open_journal(tmp_path, IDENTITY).generation == 2
    with pytest.raises(RefusedStart, match="guarantee 'exactly-once'"):
        open_journal(tmp_path, replace(IDENTITY, guarantee="at-least-once"))


def test_pruning_keeps_what_sparks_checkpoint_still_has(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    for batch in (0, 1, 2):
        journal.decide(batch, 0, {})
    journal.prune(KEEP_BATCHES + 1)
    assert [len(journal.decisions(batch)) for batch in (0, 1, 2)] == [0, 1, 1]


def test_an_entry_is_whole_json_with_its_author(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    journal.decide(1, 0, {"partitions": []})
    entry = json.loads((journal.folder / "decision-000000001.0.json").read_text())
    assert entry == {"batch": 1, "generation": 1, "partitions": []}


def test_a_driver_of_long_ago_knows_that_it_is_not_the_owner(tmp_path: Path) -> None:
    old = open_journal(tmp_path, IDENTITY)
    for _ in range(KEEP_BATCHES + 3):
        open_journal(tmp_path, IDENTITY)
    with pytest.raises(AnotherDriver, match="another driver"):
        old.check_still_ours()


@pytest.mark.parametrize("entry", ["claim", "decide"])
def test_a_driver_that_slept_until_its_entry_was_forgotten_does_not_act_on_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    old = open_journal(tmp_path, IDENTITY)

    def sleeps(folder: Path, name: str, content: dict[str, object]) -> bool:
        monkeypatch.setattr(journal, "put_exclusively", really)
        open_journal(tmp_path, IDENTITY)  # it does this batch and many others, and prunes their entries
        return really(folder, name, content)

    really = journal.put_exclusively
    monkeypatch.setattr(journal, "put_exclusively", sleeps)
    with pytest.raises(AnotherDriver, match="another driver"):
        old.claim(7) if entry == "claim" else old.decide(7, 0, {})


@pytest.mark.parametrize("text", ["", "[]", "{}", '"x"', '{"sink_id": "s"}', "{", "\x00"])
def test_a_damaged_identity_is_refused_with_the_remedy(tmp_path: Path, text: str) -> None:
    (open_journal(tmp_path, IDENTITY).folder / "identity.json").write_text(text)
    with pytest.raises(RefusedStart, match=r"identity\.json is damaged .*Restore the checkpoint with its journal"):
        open_journal(tmp_path, IDENTITY)


def test_an_identity_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = open_journal(tmp_path, IDENTITY).folder / "identity.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tier": 1}))
    with pytest.raises(RefusedStart, match=r"unknown to this version: \['tier'\].*Start that version"):
        open_journal(tmp_path, IDENTITY)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"batch": 3, "gen', '{"generation": "x"}', '{"generation": 1, "partitions": [{}]}',
             '{"generation": 1, "partitions": 7}'],
)  # fmt: skip
def test_a_damaged_decision_is_refused_with_the_remedy(tmp_path: Path, text: str) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    (journal.folder / "decision-000000003.0.json").write_text(text)
    with pytest.raises(RefusedStart, match=r"decision-000000003\.0\.json is damaged .*Restore the checkpoint"):
        journal.newest_prepared()


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_damaged_claim_or_id_is_refused_with_the_remedy(tmp_path: Path, text: str) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    (journal.folder / "claim-000000003.json").write_text(text)
    (journal.folder / "checkpoint.json").write_text(text)
    with pytest.raises(RefusedStart, match=r"claim-000000003\.json is damaged"):
        journal.claim(3)
    with pytest.raises(RefusedStart, match=r"checkpoint\.json is damaged"):
        checkpoint_id(tmp_path)
