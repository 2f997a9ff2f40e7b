"""Power cuts: record, rules of the disk, our sinks survive, each missing defence shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.delivery.contract import EXACTLY_ONCE, GUARANTEES
from oncebench.delivery.protocols import choose
from proofs.crash_states.attempts import Pipeline, Workspace
from proofs.crash_states.calls import (
    DRIVER,
    FOLDER,
    Call,
    Create,
    Link,
    MakeFolder,
    Put,
    Recorded,
    Rename,
    SyncFile,
    SyncFolder,
    Unlink,
    Write,
)
from proofs.crash_states.disk import Content, Disk, Tree, after, everything, power_cuts, settled
from proofs.crash_states.folder import build, tree_of
from proofs.crash_states.orders import moments
from proofs.crash_states.recorder import Killed, NotRecorded, Recorder
from proofs.crash_states.scenarios import first_batch, next_batches
from proofs.crash_states.variants import BROKEN, DECLARED, FORMATS, REDUNDANT, SOUND, Variant
from tests import ROOT

# One of this many states of a search is judged here, by text in the search's name; the command judges all.
ONE_OF = {"a kill": 300, "at-most-once": 37, "offsets": 5, "": 30}
EVERY_FORMAT = pytest.mark.parametrize("form", FORMATS)
HELLO = (Create("a", 1), Write(1, 0, b"hello "), SyncFile(1), Write(1, 6, b"world!"))


def workspace_in(folder: Path, form: str = "files-jsonl", guarantee: str = EXACTLY_ONCE) -> Workspace:
    kind = FORMATS[form][0]
    (folder / "record").mkdir()
    return Workspace(Pipeline(kind, choose(kind, guarantee, None)), folder / "root", folder / "record")


def disk_after(*calls: Call, start: Disk | None = None) -> Disk:
    disk = start or Disk()
    for call in calls:
        disk = after(disk, call)
    return disk


def names(disk: Disk) -> set[frozenset[str]]:
    """Every set of names that a power cut may leave on the disk."""
    return {frozenset(path for path, _ in tree.names) for tree in power_cuts(disk)}


def named(*sets: str) -> set[frozenset[str]]:
    return {frozenset(each.split()) for each in sets}


def recorder(folder: Path) -> Recorder:
    folder.mkdir()
    return Recorder(folder, Disk())


# ------------------------------------------------------------------------------------------ the rules of the disk


def test_only_forced_bytes_survive_for_certain() -> None:
    found = {dict(tree.contents).get(1) for tree in power_cuts(disk_after(*HELLO))}
    zeros = bytes(6)
    whole = b"hello world!"
    assert found == {None, b"hello ", b"hello wor", b"hello " + zeros, b"hello " + zeros[:3] + b"ld!", whole}
    forced = disk_after(*HELLO, SyncFile(1), SyncFolder(""))
    assert [dict(tree.contents) for tree in power_cuts(forced)] == [{1: whole}]


def test_a_name_survives_for_certain_after_fsync_of_its_folder() -> None:
    made = disk_after(MakeFolder("f"), Create("f/a", 1))
    assert names(made) == named("", "f", "f f/a")
    assert names(disk_after(SyncFolder("f"), start=made)) == named("", "f f/a")
    assert names(disk_after(SyncFolder(""), start=made)) == named("f", "f f/a")
    assert names(disk_after(SyncFolder("f"), SyncFolder(""), start=made)) == named("f f/a")


def test_a_rename_leaves_one_name_or_both_but_never_none() -> None:
    start = settled(Tree(frozenset({("f", FOLDER), ("g", FOLDER), ("f/old", 1)}), frozenset({(1, b"")})))
    moved = disk_after(Rename("f/old", "g/new", 1), start=start)
    assert names(moved) == named("f g f/old", "f g g/new", "f g f/old g/new")
    assert names(disk_after(SyncFolder("g"), start=moved)) == named("f g g/new", "f g f/old g/new")
    assert names(disk_after(SyncFolder("f"), start=moved)) == named("f g g/new")


def test_unforced_names_are_lost_independently() -> None:
    calls = (Create("a", 1), Link("b", 1), Unlink("a"))
    assert names(disk_after(*calls)) == named("", "a", "b", "a b")
    assert names(disk_after(*calls, SyncFolder(""))) == named("b")


def test_an_entry_of_sparks_logs_is_never_torn() -> None:
    made = (MakeFolder("f"), Put("f/0", 1, b"whole", False))
    assert {dict(tree.contents).get(1) for tree in power_cuts(disk_after(*made))} == {None, b"whole"}
    assert names(disk_after(MakeFolder("f"), Put("f/0", 1, b"whole", True))) == named("f f/0")


def test_every_subset_of_unforced_changes_is_tried() -> None:
    disk = disk_after(*(Create(name, number) for number, name in enumerate("abcdef")))
    assert len(names(disk)) == 2**6
    assert len(Content(b"", ((0, b"0123456789"),)).cuts()) == 5


def test_calls_of_concurrent_tasks_are_tried_in_every_order() -> None:
    log = [
        Recorded(f"task {task}", call) for task in (0, 1) for call in (Create(f"{task}", task), Write(task, 0, b"x"))
    ]
    orders = [tuple(each.actor for each in order) for _, order in moments(Disk(), log)]
    assert len(orders) == 3 * 3, "each task has made 0, 1 or 2 of its calls"
    driver = [Recorded(DRIVER, MakeFolder("f")), Recorded(DRIVER, SyncFolder(""))]
    last = [order for _, order in moments(Disk(), [*log, *driver])][-2:]
    assert [order[-1].actor for order in last] == [DRIVER, DRIVER], "the driver waits for its tasks"


# ------------------------------------------------------------------------------------------ the record


@EVERY_FORMAT
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_recorded_calls_make_the_tree_of_the_real_classes(tmp_path: Path, form: str, guarantee: str) -> None:
    workspace = workspace_in(tmp_path, form, guarantee)
    for scenario in (first_batch, next_batches):
        (recording,) = scenario(workspace)
        disk = disk_after(*(each.call for each in recording.log), start=recording.start)
        real = tree_of(workspace.root)
        build(everything(disk), workspace.root)
        assert tree_of(workspace.root) == real
        assert len(recording.log) > 20


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: subprocess.run(["touch", folder / "b"], check=True),
        lambda folder: shutil.copyfile("/proc/self/cmdline", folder / "b"),
        lambda folder: os.mkdir("b", dir_fd=os.open(folder, os.O_RDONLY)),
        lambda folder: os.open(folder / "b", os.O_CREAT | os.O_WRONLY),
        lambda folder: (folder / "a").open("a"),
        lambda folder: (folder / "f").rename(folder / "g"),
        lambda folder: os.truncate(folder / "a", 0),
    ],
)
def test_a_change_that_is_not_recorded_ends_the_recording(tmp_path: Path, change: object) -> None:
    recording = recorder(tmp_path / "root")
    with pytest.raises(NotRecorded), recording.listening():
        (tmp_path / "root" / "a").write_text("a")
        (tmp_path / "root" / "f").mkdir()
        change(tmp_path / "root")  # type: ignore[operator]
        (tmp_path / "root" / "z").touch()


def test_a_killed_driver_makes_no_further_calls(tmp_path: Path) -> None:
    recording = recorder(tmp_path / "root")
    path = tmp_path / "root" / "a"
    with pytest.raises(Killed), recording.listening(calls=2):
        try:
            with path.open("xb") as file:
                file.write(b"first")
                file.flush()
                file.write(b"second")
        finally:
            path.unlink()
    assert path.read_bytes() == b"first"
    assert [type(each.call) for each in recording.log] == [Create, Write]


STRACE = shutil.which("strace")
TRACED = "open,openat,creat,write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat"
MORE = "mkdir,mkdirat,rmdir,truncate,ftruncate,sync,syncfs,sync_file_range,fallocate,sendfile,copy_file_range,symlink"
RECORD = """
import sys; from pathlib import Path; from tests.proofs.test_crash_states import *
for recording in next_batches(workspace_in(Path(sys.argv[1]), sys.argv[2], sys.argv[3])):
    print(*(type(each.call).__name__ for each in recording.log))
"""
NAMES = {
    "write": "Write",
    "rename": "Rename",
    "link": "Link",
    "linkat": "Link",
    "unlink": "Unlink",
    "unlinkat": "Unlink",
    "mkdir": "MakeFolder",
}


@pytest.mark.skipif(STRACE is None, reason="needs strace")
def test_strace_sees_exactly_the_recorded_calls(tmp_path: Path) -> None:
    """strace also sees fsync, which no comparison of trees can see. C++ writes Parquet files."""
    trace = tmp_path / "trace"
    watch = [str(STRACE), "-f", "-y", "-qq", "-s", "0", "-o", str(trace), "-e", f"trace={TRACED},{MORE}"]
    root = ROOT
    workspace = [sys.executable, "-c", RECORD, str(tmp_path), "files-parquet", EXACTLY_ONCE]
    done = subprocess.run([*watch, *workspace], capture_output=True, text=True, cwd=root, timeout=250, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    recorded = [each for each in done.stdout.split() if each != "Put"]  # an entry of Spark's logs is one call to us
    seen = list(_traced(trace, str(tmp_path / "root")))
    assert seen[-len(recorded) :] == recorded


def _traced(trace: Path, root: str) -> Iterator[str]:
    """The calls below a folder that change or force something, with the names of the record."""
    for line in trace.read_text().splitlines():
        call = re.match(r"\d+\s+(\w+)\((.*)\)\s+= (-?\d+)", line)
        if call is None or root not in call[2] or call[3].startswith("-"):
            continue
        name, about = call[1], call[2]
        if re.search(r"/(offsets|commits)/\d+", about):
            continue
        if name in ("open", "openat"):
            if "O_CREAT" in about:
                yield "Create"
        elif name == "fsync":
            path = re.search(r"<(.*?)(?: \(deleted\))?>", about)
            assert path is not None
            yield "SyncFolder" if _is_folder(path[1]) else "SyncFile"
        else:
            yield NAMES.get(name, name)


def _is_folder(path: str) -> bool:
    return path.rpartition("/")[2] in ("root", "output", ".pending", "journal", "checkpoint")


# ------------------------------------------------------------------------------------------ results of the searches


@EVERY_FORMAT
@pytest.mark.parametrize("variant", [*SOUND, *DECLARED], ids=lambda each: each.name)
def test_a_power_cut_causes_only_declared_anomalies(variant: Variant, form: str) -> None:
    if "a kill" in variant.name and form == "files-parquet":
        pytest.skip("the command searches it; the calls are those of the other format")
    found = variant.run(form, next(every for text, every in ONE_OF.items() if text in variant.name))
    assert not variant.surprises(found), found.examples
    assert bool(found.wrong) == bool(variant.expected)


@EVERY_FORMAT
def test_each_guarantee_is_searched_in_at_least_500_states(form: str) -> None:
    for guarantee in GUARANTEES:
        (variant,) = (each for each in (*SOUND, *DECLARED[:2]) if f"{guarantee}, " in each.name and "more" in each.name)
        assert variant.run(form, every=10**9).states >= 500


@pytest.mark.parametrize("variant", BROKEN, ids=lambda each: each.name)
def test_a_missing_defence_causes_its_anomaly(variant: Variant) -> None:
    found = variant.run("files-jsonl")
    assert variant.expected <= set(found.wrong)
    assert all(example.calls for example in found.examples.values())


def test_a_torn_parquet_file_is_found_too() -> None:
    (variant,) = (each for each in BROKEN if each.name == "exactly-once, renamed before fsync")
    assert "CORR" in variant.run("files-parquet").wrong


@pytest.mark.parametrize("variant", REDUNDANT, ids=lambda each: each.name)
def test_a_redundant_defence_is_not_needed(variant: Variant) -> None:
    assert not variant.surprises(variant.run("files-jsonl", ONE_OF[""]))
