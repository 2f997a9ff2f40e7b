"""A damaged checkpoint: found as it was damaged, put back when it is refused, and what is told of both."""

from __future__ import annotations

import shutil
from functools import partial

import pytest

from oncebench.faults import checkpoint
from oncebench.faults.catalogue import NEMESES
from tests.unit.faults.faults_world import World, entries, run


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
def test_a_refused_damage_is_mended_and_the_checkpoint_is_what_it_was(
    world: World, name: str, found: dict[str, bytes | None] | None
) -> None:
    before = entries(world.folder / "checkpoint")
    stage = world.stage(name)
    act = NEMESES[name].act
    assert act is not None
    run(act(stage, 0.0), world)
    wanted = {} if found is None else {name: now for name, now in (before | found).items() if now is not None}
    assert world.found == [wanted, before]
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "refused"]
    assert (entries(world.folder / "checkpoint"), stage.held) == (before, False)
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_where_the_state_store_has_written_nothing_the_flip_is_idle_and_nobody_is_killed(world: World) -> None:
    shutil.rmtree(world.folder / "checkpoint" / "state")
    act = NEMESES["flip-state"].act
    assert act is not None
    run(act(world.stage("flip-state"), 0.0), world)
    assert world.events == ["nemesis-idle", "pipeline-continued"]
    assert world.whys == ["the state store has written nothing yet"]


def test_a_damage_that_is_not_refused_stays_and_the_run_goes_on_with_it(world: World) -> None:
    world.refuses = False
    run(checkpoint.damaged(world.stage("lose-commits"), 0.0, damage=lambda folder: checkpoint.lost("commits", folder)))
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "unrefused"]
    assert "commits/10" not in entries(world.folder / "checkpoint")
    assert world.all[-1].alive


def test_a_life_that_another_fault_killed_refused_nothing_and_the_checkpoint_is_what_it_was(world: World) -> None:
    before = entries(world.folder / "checkpoint")
    world.hits = [{"t_us": 6, "action": "kill"}]
    run(checkpoint.damaged(world.stage("lose-commits"), 0.0, damage=partial(checkpoint.lost, "commits")), world)
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "nemesis-idle"]
    assert (entries(world.folder / "checkpoint"), len(world.all)) == (before, 2)


def test_a_life_that_dies_after_its_first_batch_has_not_refused_the_damage(world: World) -> None:
    act = checkpoint.damaged(world.stage("lose-commits"), 0.0, damage=partial(checkpoint.lost, "commits"))
    next(act)
    world.done, world.all[-1].alive = [{"batch": 9}], False
    run(act)
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "unrefused"]


@pytest.mark.parametrize("mark", ["claim-000000009.json", "decision-000000009.0.json"])
def test_a_life_that_has_claimed_or_decided_a_batch_before_it_died_has_not_refused_the_damage(
    world: World, mark: str
) -> None:
    world.refuses = False
    act = checkpoint.rolled_back(world.stage("roll-back"), 0.0)
    journal = world.folder / "checkpoint" / "journal"
    journal.mkdir()
    next(act)
    (journal / mark).write_text("of the life before, and not in the older copy")
    world.done = [{"batch": 10}]
    world.refuses = True
    next(act)
    assert list(journal.iterdir()) == []
    (journal / mark).write_text("of the damaged life")
    world.all[-1].dies(1)
    run(act)
    assert world.events == ["pipeline-continued", "pipeline-killed", "checkpoint-damaged", "unrefused"]
    assert entries(world.folder / "checkpoint")[f"journal/{mark}"] == b"of the damaged life"
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_life_that_began_and_marked_no_batch_has_refused_the_damage(world: World) -> None:
    journal = world.folder / "checkpoint" / "journal"
    journal.mkdir()
    for name in ("identity.json", "generation-00000001.json", "claim-000000008.json"):
        (journal / name).touch()
    before = entries(world.folder / "checkpoint")
    act = checkpoint.damaged(world.stage("lose-commits"), 0.0, damage=partial(checkpoint.lost, "commits"))
    next(act)
    for name in ("generation-00000002.json", ".claim-000000009.json.f00"):
        (journal / name).touch()
    world.all[-1].dies(1)
    run(act)
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "refused"]
    assert entries(world.folder / "checkpoint") == before


def test_a_checkpoint_on_which_nothing_could_be_started_is_what_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("no process can be started")

    before = entries(world.folder / "checkpoint")
    world.done = [{"batch": 10}]  # of the life before
    monkeypatch.setattr(world, "succeed", fails)
    stage = world.stage("lose-commits")
    with pytest.raises(OSError, match="no process"):
        run(checkpoint.damaged(stage, 0.0, damage=partial(checkpoint.lost, "commits")))
    assert (entries(world.folder / "checkpoint"), stage.held) == (before, False)
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_damage_that_is_cut_short_is_taken_back_before_it_is_accepted_and_not_after(world: World) -> None:
    before = entries(world.folder / "checkpoint")
    for accepted in (False, True):
        act = checkpoint.damaged(world.stage("lose-commits"), 0.0, damage=partial(checkpoint.lost, "commits"))
        next(act)
        if accepted:
            world.done = [{"batch": 9}]
        act.close()
        assert (entries(world.folder / "checkpoint") == before, world.all[-1].alive) == (not accepted, accepted)
        assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_roll_back_that_is_cut_short_leaves_no_copy(world: World) -> None:
    act = checkpoint.rolled_back(world.stage("roll-back"), 0.0)
    next(act)
    act.close()
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_where_there_is_nothing_to_damage_the_pipeline_goes_on_and_that_is_told(world: World) -> None:
    for path in (world.folder / "checkpoint" / "commits").iterdir():
        path.unlink()
    run(checkpoint.damaged(world.stage("lose-commits"), 0.0, damage=lambda folder: checkpoint.lost("commits", folder)))
    assert world.events == ["nemesis-idle", "pipeline-continued"]
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_roll_back_for_which_too_few_batches_come_is_idle_and_holds_up_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MORE_BATCHES_S", 0.0)
    run(checkpoint.rolled_back(world.stage("roll-back"), 0.0))
    assert world.events == ["pipeline-continued", "nemesis-idle"]
    assert [path.name for path in world.folder.iterdir()] == ["checkpoint"]


def test_a_checkpoint_is_rolled_back_to_the_moment_of_the_fault(world: World) -> None:
    act = checkpoint.rolled_back(world.stage("roll-back"), 0.0)
    old = entries(world.folder / "checkpoint")
    next(act)
    assert (world.all[0].thawed, world.all[0].alive) == (1, True)
    (world.folder / "checkpoint" / "commits" / "11").write_text("new")
    new = entries(world.folder / "checkpoint")
    for batch, alive in ((9, True), (10, False)):
        world.done = [{"batch": batch}]
        next(act)
        assert world.all[0].alive is alive
    world.all[-1].alive = False
    run(act)
    assert world.found == [old, new]
