"""A damaged checkpoint: an attempt starts on it; a refusal restores the original."""

from __future__ import annotations

import shutil
from functools import partial

import pytest

from oncebench.faults import checkpoint
from oncebench.faults.catalogue import FAULTS
from tests.unit.faults.fake_pipeline import World, entries, run


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("cut-offsets", {"offsets/10": b"1234", "offsets/.10.crc": None}),
        ("empty-commits", {"commits/10": b"", "commits/.10.crc": None}),
        ("lose-commits", {"commits/10": None}),
        ("flip-state", {"state/0/1/10.changelog": b"chaoge", "state/0/1/.10.changelog.crc": None}),
        ("lose-checkpoint", None),
    ],
)
def test_a_refused_damage_is_undone(world: World, name: str, found: dict[str, bytes | None] | None) -> None:
    before = entries(world.folder / "checkpoint")
    context = world.context(name)
    injection = FAULTS[name].inject
    assert injection is not None
    run(injection(context, 0.0), world)
    wanted = {} if found is None else {name: now for name, now in (before | found).items() if now is not None}
    assert world.found == [wanted, before]
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "refused"]
    assert (entries(world.folder / "checkpoint"), context.held) == (before, False)
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_flip_state_is_idle_without_state_and_kills_nothing(world: World) -> None:
    shutil.rmtree(world.folder / "checkpoint" / "state")
    injection = FAULTS["flip-state"].inject
    assert injection is not None
    run(injection(world.context("flip-state"), 0.0), world)
    assert world.events == ["nemesis-idle", "pipeline-continued"]
    assert world.whys == ["the state store has written nothing yet that a restart reads"]


def test_flip_state_leaves_the_files_of_an_open_batch_which_no_start_reads(world: World) -> None:
    folder = world.folder / "checkpoint"
    shutil.rmtree(folder / "state")
    for version in (10, 11, 12):
        for partition in "01":
            file = folder / "state" / "0" / partition / f"{version}.changelog"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"x" * (version + int(partition)))
    (folder / "offsets" / "11").write_text("an open batch, which has written version 12")
    assert checkpoint.newest_state_file(folder) == folder / "state" / "0" / "1" / "11.changelog"
    shutil.rmtree(folder / "commits")
    with pytest.raises(checkpoint.NothingThereError, match="Spark's commits has no entry yet"):
        checkpoint.newest_state_file(folder)


def test_an_unrefused_damage_stays(world: World) -> None:
    world.refuses = False
    run(
        checkpoint.damage_checkpoint(
            world.context("lose-commits"), 0.0, damage=lambda folder: checkpoint.delete_entry("commits", folder)
        )
    )
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "unrefused"]
    assert "commits/10" not in entries(world.folder / "checkpoint")
    assert world.attempts[-1].alive


def test_an_overtaken_damage_is_idle_and_undone(world: World) -> None:
    before = entries(world.folder / "checkpoint")
    world.later = [{"t_us": 6, "action": "kill"}]
    run(
        checkpoint.damage_checkpoint(
            world.context("lose-commits"), 0.0, damage=partial(checkpoint.delete_entry, "commits")
        ),
        world,
    )
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "nemesis-idle"]
    assert (entries(world.folder / "checkpoint"), len(world.attempts)) == (before, 2)


def test_an_attempt_that_dies_after_a_batch_has_not_refused(world: World) -> None:
    injection = checkpoint.damage_checkpoint(
        world.context("lose-commits"), 0.0, damage=partial(checkpoint.delete_entry, "commits")
    )
    next(injection)
    world.done, world.attempts[-1].alive = [{"batch": 9}], False
    run(injection)
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "unrefused"]


@pytest.mark.parametrize("mark", ["claim-000000009.json", "decision-000000009.0.json"])
def test_an_attempt_that_claimed_or_decided_has_not_refused(world: World, mark: str) -> None:
    world.refuses = False
    injection = checkpoint.roll_back(world.context("roll-back"), 0.0)
    journal = world.folder / "checkpoint" / "journal"
    journal.mkdir()
    next(injection)
    (journal / mark).write_text("of the earlier attempt, and not in the older copy")
    world.done = [{"batch": 10}]
    world.refuses = True
    next(injection)
    assert list(journal.iterdir()) == []
    (journal / mark).write_text("of the damaged attempt")
    world.attempts[-1].dies(1)
    run(injection)
    assert world.events == ["pipeline-continued", "pipeline-killed", "checkpoint-damaged", "unrefused"]
    assert entries(world.folder / "checkpoint")[f"journal/{mark}"] == b"of the damaged attempt"
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_an_attempt_without_claim_or_decision_has_refused(world: World) -> None:
    journal = world.folder / "checkpoint" / "journal"
    journal.mkdir()
    for name in ("identity.json", "generation-00000001.json", "claim-000000008.json"):
        (journal / name).touch()
    before = entries(world.folder / "checkpoint")
    injection = checkpoint.damage_checkpoint(
        world.context("lose-commits"), 0.0, damage=partial(checkpoint.delete_entry, "commits")
    )
    next(injection)
    for name in ("generation-00000002.json", ".claim-000000009.json.f00"):
        (journal / name).touch()
    world.attempts[-1].dies(1)
    run(injection)
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "refused"]
    assert entries(world.folder / "checkpoint") == before


def test_a_failed_start_restores_the_checkpoint(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("no process can be started")

    before = entries(world.folder / "checkpoint")
    world.done = [{"batch": 10}]  # of the earlier attempt
    monkeypatch.setattr(world, "start_successor", fails)
    context = world.context("lose-commits")
    with pytest.raises(OSError, match="no process"):
        run(checkpoint.damage_checkpoint(context, 0.0, damage=partial(checkpoint.delete_entry, "commits")))
    assert (entries(world.folder / "checkpoint"), context.held) == (before, False)
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_damage_that_is_cut_short_is_undone_unless_accepted(world: World) -> None:
    before = entries(world.folder / "checkpoint")
    for accepted in (False, True):
        injection = checkpoint.damage_checkpoint(
            world.context("lose-commits"), 0.0, damage=partial(checkpoint.delete_entry, "commits")
        )
        next(injection)
        if accepted:
            world.done = [{"batch": 9}]
        injection.close()
        assert (entries(world.folder / "checkpoint") == before, world.attempts[-1].alive) == (not accepted, accepted)
        assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_roll_back_that_is_cut_short_leaves_no_copy(world: World) -> None:
    injection = checkpoint.roll_back(world.context("roll-back"), 0.0)
    next(injection)
    injection.close()
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_damage_without_target_is_idle(world: World) -> None:
    for path in (world.folder / "checkpoint" / "commits").iterdir():
        path.unlink()
    run(
        checkpoint.damage_checkpoint(
            world.context("lose-commits"), 0.0, damage=lambda folder: checkpoint.delete_entry("commits", folder)
        )
    )
    assert world.events == ["nemesis-idle", "pipeline-continued"]
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_roll_back_with_too_few_batches_is_idle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MORE_BATCHES_S", 0.0)
    run(checkpoint.roll_back(world.context("roll-back"), 0.0))
    assert world.events == ["pipeline-continued", "nemesis-idle"]
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_roll_back_restores_the_checkpoint_of_the_failpoint(world: World) -> None:
    injection = checkpoint.roll_back(world.context("roll-back"), 0.0)
    old = entries(world.folder / "checkpoint")
    next(injection)
    assert (world.attempts[0].thawed, world.attempts[0].alive) == (1, True)
    (world.folder / "checkpoint" / "commits" / "11").write_text("new")
    new = entries(world.folder / "checkpoint")
    for batch, alive in ((9, True), (10, False)):
        world.done = [{"batch": batch}]
        next(injection)
        assert world.attempts[0].alive is alive
    world.attempts[-1].alive = False
    run(injection)
    assert world.found == [old, new]
