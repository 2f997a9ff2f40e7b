"""A small disk: only the suite sees it, and it goes away with the suite."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from oncebench.downloads.java import Java
from oncebench.errors import MissingEnvironment, UserError
from oncebench.faults import catalogue, disk
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab import broker as brokers
from oncebench.lab import disk as disks
from oncebench.lab.disk import open_disks
from oncebench.lab.lab import Lab
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.servers import small_disk
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.kafka.cluster import KafkaCluster
from oncebench.servers.kafka.topics import Kafka
from oncebench.servers.proxy.network import Network
from oncebench.servers.small_disk import BALLAST, MOST_BYTES, cannot_mount, fill
from tests import ROOT
from tests.unit.faults.fake_pipeline import World, run

SIZE = 1_048_576
CELL = Cell("files-jsonl", "exactly-once", "two-phase", faults=("mid-write:fill-output:5",))
allowed = pytest.mark.skipif(cannot_mount() is not None, reason=str(cannot_mount()))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a small disk of SIZE bytes."""
    try:
        with small_disk.small_disk(tmp_path / "sink", SIZE):
            yield tmp_path / "sink"
    except MissingEnvironment as error:
        pytest.skip(str(error))


def mounts() -> str:
    return Path("/proc/self/mounts").read_text()


@allowed
def test_a_full_disk_takes_no_byte_until_its_ballast_is_gone(folder: Path) -> None:
    (folder / "before").write_bytes(b"x" * 10_000)
    ballast = fill(folder)
    assert ballast.name.startswith(BALLAST)
    assert os.statvfs(folder).f_bavail == 0
    with pytest.raises(OSError, match="No space left") as caught:
        (folder / "after").write_bytes(b"x")
    assert caught.value.errno == errno.ENOSPC
    ballast.unlink()
    (folder / "after").write_bytes(b"x" * 10_000)


@allowed
def test_a_disk_filled_twice_has_room_without_both_ballasts(folder: Path) -> None:
    for first_gone in (0, 1):
        ballasts = [fill(folder), fill(folder)]
        ballasts[first_gone].unlink()
        ballasts[1 - first_gone].unlink()
        (folder / "after").write_bytes(b"x" * 10_000)
        (folder / "after").unlink()


def test_only_a_small_disk_is_filled(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/")):
        with pytest.raises(ValueError, match="is no small disk"):
            fill(place)
    assert not any(tmp_path.iterdir())


@allowed
@pytest.mark.parametrize("fails", [False, True])
def test_the_folder_keeps_what_was_written_also_after_a_failure(tmp_path: Path, fails: bool) -> None:
    try:
        with open_disks(CELL, tmp_path):
            (tmp_path / "sink" / "output").mkdir()
            (tmp_path / "sink" / "output" / "rows").write_text("rows")
            assert str(tmp_path) in mounts()
            assert not (tmp_path / "checkpoint").exists(), "nothing fills it"
            if fails:
                raise UserError("it went wrong")
    except MissingEnvironment as error:
        pytest.skip(str(error))
    except UserError:
        assert fails
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "sink", "sink/output", "sink/output/rows"
    ]  # fmt: skip
    assert str(tmp_path) not in mounts()


@allowed
def test_a_killed_suite_leaves_no_mount(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from oncebench.servers.small_disk import small_disk\n"
        f"with small_disk(Path(sys.argv[1]), {SIZE}):\n"
        "    (Path(sys.argv[1]) / 'row').write_text('row'); print('mounted', flush=True); time.sleep(600)"
    )
    place = tmp_path / "sink"
    with subprocess.Popen([sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, cwd=ROOT) as suite:
        assert suite.stdout is not None
        ready = suite.stdout.readline()
        mine = (any(place.iterdir()), str(place) in mounts())
        theirs = str(place) in Path(f"/proc/{suite.pid}/mounts").read_text() if ready else False
        suite.send_signal(signal.SIGKILL)
    if not ready:
        pytest.skip("mounts are forbidden here")
    assert (mine, theirs) == ((False, False), True)
    place.rmdir()


def test_a_disk_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironment, match="run fewer events"), small_disk.small_disk(tmp_path, MOST_BYTES + 1):
        pass


def test_without_mounts_only_full_disk_faults_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogue, "cannot_mount", lambda: "a small disk is mounted by root only (CAP_SYS_ADMIN)")
    with pytest.raises(UserError, match="fault mid-write:fill-output:5: a small disk is mounted by root only"):
        require_possible([CELL])
    require_possible([Cell("files-jsonl", "exactly-once", "two-phase", faults=("mid-write:kill",))])


def test_a_mount_that_the_kernel_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *_arguments: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(small_disk, "_call", refuse)
    with pytest.raises(MissingEnvironment, match="Operation not permitted"), open_disks(CELL, tmp_path):
        pass
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("dies", [True, False])
def test_the_disk_has_room_again_after_a_death_or_the_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    def filled(place: Path) -> Path:
        assert place == tmp_path / "sink"
        (tmp_path / BALLAST).write_text("full")
        return tmp_path / BALLAST

    monkeypatch.setattr(disk, "fill", filled)
    world = World(tmp_path)
    world.attempts[0].log = log = tmp_path / "pipeline.log"
    log.touch()
    context = world.context("fill-output")
    injection = disk.fill_disk(context, 3600.0 if dies else 0.001, folder=disk.OUTPUT)
    next(injection)
    assert ((tmp_path / BALLAST).exists(), context.held, world.attempts[0].thawed) == (True, True, 1)
    world.attempts[0].alive = not dies
    log.write_text("OSError: [Errno 28] No space left on device\n")
    run(injection, polls=10**6)
    assert ((tmp_path / BALLAST).exists(), context.held) == (False, False)
    idle = [] if dies else ["nemesis-idle"]
    assert world.events == ["disk-full", "pipeline-continued", "disk-has-room", *idle]


@pytest.mark.parametrize(
    ("last", "named"),
    [
        ("stopped: the disk is full. Make room on the disk", True),
        ("java.io.IOException: No space left on device", True),
        ("sqlite3.OperationalError: database or disk is full", True),
        ("stopped: Kafka does not answer", False),
        ("", False),  # SIGKILL by the kernel, which was out of memory
    ],
)
@pytest.mark.parametrize("folder", [disk.OUTPUT, disk.BROKER])
def test_a_death_for_another_reason_is_none_of_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, last: str, named: bool
) -> None:
    monkeypatch.setattr(disk, "fill", lambda _place: tmp_path / BALLAST)
    log = tmp_path / "a.log"
    log.write_text("No space left on device: an earlier fault\n")
    world, broker = World(tmp_path, words=last), Broker(log=log)
    world.attempts[0].log = log
    context = world.context("fill", broker)
    injection = (
        disk.fill_broker_disk(context, 3600.0)
        if folder == disk.BROKER
        else disk.fill_disk(context, 3600.0, folder=folder)
    )
    (tmp_path / BALLAST).write_text("full")
    next(injection)
    with log.open("a") as file:
        file.write(last)
    world.attempts[0].alive = broker.alive = False
    run(injection)
    assert ("nemesis-idle" in world.events) is not named
    assert named or all("does not name the full disk" in why for why in world.whys)


@pytest.mark.parametrize("folder", [disk.OUTPUT, disk.BROKER])
def test_an_overtaken_full_disk_is_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (tmp_path / BALLAST).write_text("full")
    monkeypatch.setattr(disk, "fill", lambda _place: tmp_path / BALLAST)
    world, broker = World(tmp_path), Broker()
    context = world.context("fill", broker)
    injection = (
        disk.fill_broker_disk(context, 3600.0)
        if folder == disk.BROKER
        else disk.fill_disk(context, 3600.0, folder=folder)
    )
    next(injection)
    world.later = [{"t_us": 5, "action": "fill"}, {"t_us": 6, "action": "kill-broker"}]
    world.attempts[0].alive = broker.alive = False
    run(injection)
    assert ("nemesis-idle" in world.events, "broker-halted" in world.events) == (True, False)


def test_the_disk_has_room_again_at_the_end_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / BALLAST).write_text("full")
    monkeypatch.setattr(disk, "fill", lambda _place: tmp_path / BALLAST)
    injection = disk.fill_disk(World(tmp_path).context("fill-output"), 3600.0, folder=disk.OUTPUT)
    next(injection)
    injection.close()
    assert not (tmp_path / BALLAST).exists()


@dataclass
class Broker:
    """One that can halt, and can be started again."""

    alive: bool = True
    starts: int = 0
    log: Path = Path(os.devnull)

    def restart(self) -> None:
        self.alive, self.starts = True, self.starts + 1


@pytest.mark.parametrize("ends", ["halts", "survives", "cut short"])
def test_a_broker_with_a_full_disk_serves_again_however_the_fault_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    def filled(place: Path) -> Path:
        assert place == tmp_path / "broker" / "kafka"
        (tmp_path / BALLAST).write_text("full")
        return tmp_path / BALLAST

    monkeypatch.setattr(disk, "fill", filled)
    world, broker = World(tmp_path), Broker(log=tmp_path / "kafka.log")
    broker.log.touch()
    context = world.context("fill-broker", broker)
    injection = disk.fill_broker_disk(context, 0.001 if ends == "survives" else 3600.0)
    next(injection)
    assert ((tmp_path / BALLAST).exists(), context.held, world.attempts[0].thawed, broker.starts) == (True, True, 1, 0)
    broker.log.write_text("java.io.IOException: No space left on device\n")
    broker.alive = ends != "halts"
    injection.close() if ends == "cut short" else run(injection, polls=10**6)
    assert ((tmp_path / BALLAST).exists(), context.held, broker.alive, broker.starts) == (False, False, True, 1)
    expected = {"halts": ["broker-halted"], "survives": ["nemesis-idle"], "cut short": []}[ends]
    assert world.events == ["disk-full", "pipeline-continued", *expected, "disk-has-room", "broker-back"]


def test_a_second_full_disk_waits_for_the_end_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "broker" / "kafka"
    place.mkdir(parents=True)

    def filled(_place: Path) -> Path:
        assert not any(place.iterdir()), "a second ballast takes no byte, and the disk has room without the first"
        (place / f"{BALLAST}x").touch()
        return place / f"{BALLAST}x"

    monkeypatch.setattr(disk, "fill", filled)
    first_world, second_world, broker = World(tmp_path), World(tmp_path), Broker()
    first = disk.fill_broker_disk(first_world.context("fill-broker", broker), 3600.0)
    second = disk.fill_broker_disk(second_world.context("fill-broker", broker), 3600.0)
    for injection in (first, second, second):
        next(injection)
    assert (second_world.events, second_world.attempts[0].thawed) == ([], 0)
    broker.alive = False
    run(first)
    next(second)
    assert second_world.events == ["disk-full", "pipeline-continued"]
    broker.alive = False
    run(second)
    assert broker.starts == 2


def test_a_full_broker_or_another_number_of_brokers_is_the_runs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = Java(tmp_path, tmp_path / "java", "17.0.1")
    three = KafkaCluster(
        {number: cast("KafkaBroker", Kafka(KafkaAccess(f"localhost:{number}"))) for number in (1, 2, 3)}
    )
    theirs, lab = (
        Lab(kafka, java, (), servers={"kafka": "lab's", "postgres": "lab's"})
        for kafka in (Kafka(KafkaAccess("localhost:1")), three)
    )
    started: list[tuple[int, bool]] = []

    @contextmanager
    def own_brokers(folder: Path, found: Java, number: int, separable: bool) -> Iterator[tuple[str, str]]:
        assert (folder, found) == (tmp_path / "broker", java)
        started.append((number, separable))
        yield "own", "link"

    monkeypatch.setattr(brokers, "own_brokers", own_brokers)
    apart = replace(CELL, brokers=3, faults=("mid-write:isolate-output-leader:30",))
    proxied = replace(lab, kafka=KafkaCluster(three.brokers, cast("Network", "proxies")))
    for cell, its in ((CELL, theirs), (replace(CELL, brokers=3), lab), (apart, proxied)):
        with brokers.open_broker(cell, its, tmp_path) as found:
            assert found is its
    for cell, its, expected in (
        (CELL, lab, (1, False)),
        (apart, lab, (3, True)),
        (replace(CELL, brokers=3), proxied, (3, False)),
    ):
        with brokers.open_broker(cell, its, tmp_path) as found:
            assert (found.kafka, started[-1]) == ("own", expected)
    with brokers.open_broker(replace(CELL, faults=("mid-write:fill-broker:5",)), lab, tmp_path) as found:
        assert (found.kafka, found.servers, found.link) == ("own", {"kafka": "own", "postgres": "lab's"}, "link")
    assert len(started) == 4


def test_a_run_without_disk_faults_has_no_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "small_disk", None)
    with open_disks(Cell("files-jsonl", "exactly-once", "two-phase", faults=("mid-write:kill",)), tmp_path):
        assert not any(tmp_path.iterdir())


@allowed
def test_an_older_thread_sees_the_disk_if_the_namespace_is_older(tmp_path: Path) -> None:
    code = (
        "import sys; from concurrent.futures import ThreadPoolExecutor; from pathlib import Path\n"
        "from oncebench.lab.disk import open_disks, prepare_disks; from oncebench.scenario.cell import Cell\n"
        "cell = Cell('files-jsonl', 'exactly-once', 'two-phase', faults=('mid-write:fill-output:5',))\n"
        "place = Path(sys.argv[1]); sink = place / 'sink'\n"
        "prepare_disks([cell])\n"
        "with ThreadPoolExecutor(1) as older:\n"
        "    older.submit(list).result()\n"
        "    with open_disks(cell, place):\n"
        "        (sink / 'row').write_text('row'); print(older.submit(lambda: [*sink.iterdir()]).result())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    if "no small disk can be mounted" in result.stderr:
        pytest.skip("mounts are forbidden here")
    assert "sink/row" in result.stdout, result.stderr


@allowed
def test_a_disk_is_filled_despite_concurrent_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.posix_fallocate

    def late(number: int, start: int, length: int) -> None:
        if not (folder / "theirs").exists():
            (folder / "theirs").write_bytes(b"x" * 10_000)
        real(number, start, length)

    monkeypatch.setattr(os, "posix_fallocate", late)
    fill(folder)
    assert os.statvfs(folder).f_bavail == 0
