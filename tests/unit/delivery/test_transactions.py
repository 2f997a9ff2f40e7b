"""Who may end a transaction that a dead job has left open.

The tests cover every decision and state, the note, and the living driver.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.delivery.contract import Mark
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Identity, look_into, open_journal
from oncebench.delivery.transactions.alive import living_driver
from oncebench.delivery.transactions.decided import ABORT, COMMIT, Decision, Judged, judge
from oncebench.delivery.transactions.left import ENDING, HANGING, LOST, OPEN, PREPARED, Left
from oncebench.delivery.transactions.rights import readable, refuse_unreadable
from oncebench.delivery.transactions.trace import note_ended
from tests import ROOT

IDENTITY = Identity("orders", "postgres", "exactly-once", "two-phase", 2)


def prepared(name: str) -> dict[str, Any]:
    return {"gid": name}


def decision(name: str, batch: int = 7, partition: int = 0) -> dict[str, Any]:
    return {**prepared(name), "batch": batch, "partition": partition}


def mark(batch: int) -> Mark:
    return Mark(batch, 0, None)


def judged(
    found: list[Left], decided: list[dict[str, Any]] | None, marks: dict[int, Mark]
) -> list[tuple[str, str, str, tuple[int, ...]]]:
    made = judge(found, decided, marks, lambda entry: str(entry["gid"]))
    return [(each.left.name, each.left.state, str(each.decision), each.left.partitions) for each in made]


def open_(name: str, state: str = PREPARED, **more: Any) -> Left:
    return Left(name, state, prepared(name), **more)


@pytest.mark.parametrize("state", [OPEN, PREPARED])
@pytest.mark.parametrize(
    ("decided", "commit", "abort", "accepted"),
    [
        (Decision.COMMIT, True, False, False),
        (Decision.UNDECIDED, False, True, True),
        (Decision.ABORT, False, True, True),
        (Decision.UNKNOWN, False, False, True),
    ],
)
def test_a_decision_allows_one_end(state: str, decided: Decision, commit: bool, abort: bool, accepted: bool) -> None:
    each = Judged(open_("a", state), decided)
    assert (each.why_not(COMMIT) is None, each.why_not(ABORT) is None) == (commit, abort)
    assert each.why_not(ABORT, accept_loss=True) is None or not accepted
    assert (each.why_not(ABORT, accept_loss=True) is None) == accepted
    assert (each.why_not(COMMIT, accept_loss=True) is None) == commit


@pytest.mark.parametrize("decided", Decision)
@pytest.mark.parametrize("state", [LOST, ENDING])
def test_what_the_server_has_ended_or_ends_is_left_alone(state: str, decided: Decision) -> None:
    each = Judged(open_("a", state), decided)
    assert all(each.why_not(asked, accept_loss) for asked in (COMMIT, ABORT) for accept_loss in (True, False))


def test_a_hanging_transaction_without_a_known_outcome_is_left_alone() -> None:
    assert Judged(open_("a", HANGING), Decision.UNKNOWN).why_not(ABORT, accept_loss=True) is not None


def test_a_named_transaction_is_decided_and_another_one_is_not() -> None:
    assert judged([open_("a"), open_("b")], [decision("a", partition=1)], {1: mark(6)}) == [
        ("a", PREPARED, "commit", (1,)),
        ("b", PREPARED, "undecided", ()),
    ]


def test_a_later_transaction_under_the_name_of_a_committed_decision_is_undecided() -> None:
    assert judged([open_("a")], [decision("a", batch=7)], {0: mark(7)}) == [("a", PREPARED, "undecided", ())]
    assert judged([open_("a")], [decision("a", batch=7)], {0: mark(6)}) == [("a", PREPARED, "commit", (0,))]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [({0: mark(6)}, "commit"), ({0: mark(7)}, "undecided"), ({}, "undecided")],
    ids=["set back", "committed", "expired"],
)
def test_a_finished_batch_is_committed_again_only_after_its_server_was_set_back(
    marks: dict[int, Mark], expected: str
) -> None:
    finished = {**decision("a", batch=7), "finished": True}
    assert judged([open_("a")], [finished], marks) == [("a", PREPARED, expected, (0,) if expected == "commit" else ())]
    assert judged([], [finished], marks) == [], "no start writes a finished batch again"


def test_without_a_journal_nothing_is_known_but_what_the_server_has_decided() -> None:
    found = [open_("a"), open_("b", ENDING, outcome=True), open_("c", HANGING, outcome=False), open_("d", HANGING)]
    assert [each[2] for each in judged(found, None, {})] == ["unknown", "commit", "abort", "unknown"]
    assert [each[2] for each in judged(found, [], {})] == ["undecided", "commit", "abort", "unknown"]


def test_a_decided_transaction_that_is_neither_open_nor_committed_is_lost() -> None:
    decided = [decision("a", partition=0), decision("b", partition=1), decision("c", partition=2)]
    assert judged([open_("a")], decided, {0: mark(6), 1: mark(6), 2: mark(7)}) == [
        ("a", PREPARED, "commit", (0,)),
        ("b", LOST, "commit", (1,)),
    ]
    assert judged([], decided[:1], {}) == [], "its marker has expired: it may be committed"


def test_a_shared_transaction_is_listed_once_with_its_partitions() -> None:
    decided = [decision("a", partition=0), decision("b", partition=1), decision("a", partition=2)]
    marks = {0: mark(6), 1: mark(6), 2: mark(6)}
    assert judged([open_("a")], decided, marks) == [("a", PREPARED, "commit", (0, 2)), ("b", LOST, "commit", (1,))]
    assert judged([], decided, marks)[0] == ("a", LOST, "commit", (0, 2))


def test_one_marker_shows_the_commit_of_a_shared_transaction() -> None:
    decided = [decision("a", partition=0), decision("a", partition=1)]
    assert judged([open_("a")], decided, {0: mark(6), 1: mark(7)}) == [("a", PREPARED, "undecided", ())]
    assert judged([], decided, {0: mark(7), 1: mark(6)}) == []


def test_each_call_leaves_a_note_of_its_own(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, IDENTITY)
    assert note_ended(journal, COMMIT, [open_("a", batch=7, partitions=(1,))]) == "ended-000000.json"
    assert note_ended(journal, ABORT, []) == "ended-000001.json"
    entry = json.loads((journal.folder / "ended-000000.json").read_text())
    assert entry["transactions"] == [{"name": "a", "batch": 7, "partitions": [1]}]
    assert (entry["asked"], entry["generation"]) == (COMMIT, 1)


def test_looking_into_a_journal_takes_no_generation(tmp_path: Path) -> None:
    open_journal(tmp_path, IDENTITY)
    before = sorted((tmp_path / "journal").iterdir())
    identity, journal = look_into(tmp_path)
    assert (identity, journal.generation, journal.newest_prepared()) == (IDENTITY, 1, [])
    assert sorted((tmp_path / "journal").iterdir()) == before


def start(journal: Path, pid: int, generation: int, **more: Any) -> Path:
    path = journal / f"generation-{generation:08d}.json"
    path.write_text(json.dumps({"pid": pid, "driver": "d", **more}))
    return path


def test_the_newest_start_of_this_machine_is_alive_while_its_process_runs(tmp_path: Path) -> None:
    assert living_driver(tmp_path) is None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start(tmp_path, child.pid, 1, host=socket.gethostname())
        assert str(living_driver(tmp_path)).startswith(f"process {child.pid} (")
        start(tmp_path, child.pid, 2)  # an older version noted no machine
        assert living_driver(tmp_path) is not None
        start(tmp_path, child.pid, 3, host="another")
        assert living_driver(tmp_path) is None
        child.kill()
        start(tmp_path, child.pid, 4)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert living_driver(tmp_path) is None, "it is dead, although nobody has waited for it"


def test_a_process_that_was_started_after_the_driver_is_another_one(tmp_path: Path) -> None:
    path = start(tmp_path, os.getppid(), 1)
    assert living_driver(tmp_path) is not None
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert living_driver(tmp_path) is None


def test_an_older_process_with_the_drivers_id_is_not_the_driver(tmp_path: Path) -> None:
    """The process is the first one of a node.

    The driver was the first process of a container with the node's name.
    """
    journal = open_journal(tmp_path, IDENTITY)
    (entry,) = journal.generations()
    start(journal.folder, os.getppid(), 2, host=entry["host"], process=f"{entry['process']}0")
    assert living_driver(journal.folder) is None


def test_a_driver_is_found_by_the_name_in_its_journal(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from oncebench.delivery.journal import Identity, open_journal\n"
        f"open_journal(Path({str(tmp_path)!r}), Identity('a', 'b', 'c', 'd', 2)); print(flush=True); input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = living_driver(tmp_path / "journal")
        child.kill()
    assert str(found).startswith(f"process {child.pid} (")


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_a_user_whose_entries_the_job_cannot_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: None
) -> None:
    folder = open_journal(tmp_path, IDENTITY).folder
    refuse_unreadable(folder)  # the job's own user
    found = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path: SimpleNamespace(st_uid=4711) if path == folder else found(path))
    before = sorted(folder.iterdir())
    with pytest.raises(RefusedStart, match=r"belongs to user id 4711.*Run the command as that user"):
        refuse_unreadable(folder)
    os.umask(0o022)
    refuse_unreadable(folder)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(("group", "mode", "may"), [(0, 0o640, True), (0, 0o600, False), (4711, 0o640, False)])
def test_the_jobs_group_may_read_an_entry(group: int, mode: int, may: bool) -> None:
    entry: Any = SimpleNamespace(st_uid=4711, st_gid=group, st_mode=mode)
    assert readable(entry, user=0) == may


def test_an_entry_of_another_user_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path, IDENTITY)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(RefusedStart, match=r"generation-00000001\.json cannot be read \(Permission denied\).*chown"):
        list(journal.generations())


def test_the_process_that_asks_is_not_the_job(tmp_path: Path) -> None:
    start(tmp_path, os.getpid(), 1)
    assert living_driver(tmp_path) is None
