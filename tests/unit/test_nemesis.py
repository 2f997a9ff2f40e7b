"""Each nemesis: where it can act, what it leaves behind, and that what it broke is whole again at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from oncebench.errors import UserError
from oncebench.nemesis import checkpoint, lives, servers
from oncebench.nemesis.acts import NEMESES, complaint, why_not
from oncebench.nemesis.stage import Stage
from oncebench.run.place import EXECUTORS, placed
from oncebench.scenario import Cell, checked_fault, require_possible
from oncebench.services.process import Child
from pipeline.config import PipelineConfig
from pipeline.failpoints import KILL, POINTS, parse_fault
from pipeline.sinks.registry import SINKS
from pipeline.wire import Transaction

ROOT = Path(__file__).parents[2]


@dataclass
class Life:
    pid: int
    config: PipelineConfig | None = None
    alive: bool = True
    thawed: int = 0
    returncode: int | None = None
    others: tuple[int, ...] = ()

    def kill_session(self) -> None:
        self.alive = False

    def thaw(self) -> None:
        self.thawed += 1

    def send(self, _number: int) -> None:
        self.alive = False

    def members(self) -> tuple[int, ...]:
        return self.others


@dataclass
class World:
    """The lives of a pretended pipeline. `dies`: what each later life does with the checkpoint that it finds."""

    folder: Path
    all: list[Life] = field(default_factory=lambda: [Life(1)])
    events: list[str] = field(default_factory=list)
    done: list[dict[str, Any]] = field(default_factory=list)
    refuses: bool = True
    found: list[dict[str, bytes]] = field(default_factory=list)

    @property
    def child(self) -> Child | None:
        return cast("Child", self.all[-1])

    def succeed(self, config: PipelineConfig | None = None) -> None:
        self.all.append(Life(len(self.all) + 1, config))
        self.found.append(entries(self.folder / "checkpoint"))
        self.done = [] if self.refuses or config else [{"batch": 9}]

    def batches(self) -> list[dict[str, Any]]:
        return self.done

    def running(self) -> bool:
        return True

    def last_words(self) -> str:
        return "refused to start: no"

    def note(self, event: str, **_fields: Any) -> None:
        self.events.append(event)

    def stage(self, fault: str, broken: Any = None) -> Stage:
        config = PipelineConfig(
            "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id",
            self.folder / "checkpoint", self.folder,
        )  # fmt: skip
        hit = {"fault": fault, "batch": 8, "point": "after-commit", "pid": 77, "t_us": 5}
        return Stage(self, cast("Child", self.all[0]), hit, config, {"kafka": broken, "postgres": broken})


@dataclass
class Server:
    pid: int = 1
    said: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return lambda: self.said.append(name)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    for log in ("offsets", "commits"):
        (tmp_path / "checkpoint" / log).mkdir(parents=True)
        for batch in (7, 8, 10):
            (tmp_path / "checkpoint" / log / str(batch)).write_bytes(b"12345678")
        (tmp_path / "checkpoint" / log / ".10.crc").write_bytes(b"c")
    yield World(tmp_path)


def entries(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(act: Generator[None], world: World | None = None, looks: int = 50) -> None:
    """Looks again and again, as the supervisor does; a life that is to refuse dies at the second look."""
    for look in range(looks):
        if next(act, "over") == "over":
            return
        if world is not None and look == 1 and world.refuses:
            world.all[-1].alive = False
    raise AssertionError(f"the act was not over after {looks} looks")


@pytest.mark.parametrize("nemesis", NEMESES.values(), ids=NEMESES)
def test_every_nemesis_is_told_of_and_says_how_it_is_asked_for(nemesis: Any) -> None:
    point = next(point for point in POINTS if point in nemesis.points)
    fault = f"{point}:{nemesis.name}{':5' if nemesis.timed else ''}"
    assert checked_fault(fault) == fault
    wrong = complaint(parse_fault(f"{point}:{nemesis.name}{'' if nemesis.timed else ':5'}"))
    assert wrong is not None
    assert "seconds" in wrong
    assert f"`:{nemesis.name}" in (ROOT / "docs" / "faults.md").read_text()


def test_a_nemesis_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(UserError, match="unknown nemesis 'burn'; they are: kill, stop, ") as refused:
        checked_fault("after-commit:burn")
    assert refused.value.exit_code == 2


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
def test_what_cannot_be_done_is_refused_with_the_reason(
    fault: str, sink: str, variant: str, ours: frozenset[str] | None, says: str | None
) -> None:
    support = next(support for support in SINKS[sink].supports if support.variant == variant)
    reason = why_not(parse_fault(fault), SINKS[sink], support, ours)
    assert (reason is None) == (says is None)
    cell = Cell(sink, support.delivery, variant, faults=(fault,))
    if says is None:
        require_possible([cell], ours)
    else:
        assert says in str(reason)
        with pytest.raises(UserError, match=f"fault {fault}: ") as refused:
            require_possible([cell], ours)
        assert refused.value.exit_code == 2


def test_the_kill_of_a_failpoint_is_the_pipelines_own_and_all_others_act_from_outside() -> None:
    assert [name for name, nemesis in NEMESES.items() if nemesis.act is None] == [KILL]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("cut-offsets", {"offsets/10": b"1234"}),
        ("empty-commits", {"commits/10": b""}),
        ("lose-commits", {"commits/10": None}),
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


def test_a_damage_that_is_not_refused_stays_and_the_run_goes_on_with_it(world: World) -> None:
    world.refuses = False
    run(checkpoint.damaged(world.stage("lose-commits"), 0.0, damage=lambda folder: checkpoint.lost("commits", folder)))
    assert world.events == ["pipeline-killed", "checkpoint-damaged", "unrefused"]
    assert "commits/10" not in entries(world.folder / "checkpoint")
    assert world.all[-1].alive


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


def test_a_restart_with_another_number_of_partitions_is_tried_and_taken_back(world: World) -> None:
    stage = world.stage("repartition")
    run(lives.repartition(stage, 0.0), world)
    assert [life.config and life.config.partitions for life in world.all[1:]] == [3, 2]
    assert "refused" in world.events


def test_a_crash_loop_kills_every_life_but_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "LOOP_MAX_S", 0.001)
    run(lives.crash_loop(world.stage("crash-loop"), 0.0), looks=10**6)
    assert [life.alive for life in world.all] == [False] * (lives.LOOP + 1) + [True]


def test_a_clean_stop_is_followed_by_a_start(world: World) -> None:
    run(lives.end(world.stage("end"), 0.0))
    assert (world.events, [life.alive for life in world.all]) == (["pipeline-stopped"], [False, True])


def test_a_clean_stop_is_asked_for_and_no_kill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(
        world.all[0], "send", lambda number: (sent.append(number), setattr(world.all[0], "alive", False))
    )
    run(lives.end(world.stage("end"), 0.0))
    assert sent == [signal.SIGTERM]


def test_an_outage_lasts_as_long_as_was_asked_for(world: World) -> None:
    act = lives.outage(world.stage("outage"), 0.2)
    next(act)
    began = time.monotonic()
    assert world.events == ["pipeline-killed"]
    run(act, looks=10**7)
    assert time.monotonic() - began > 0.15
    assert [life.alive for life in world.all] == [False, True]


def test_a_crash_loop_is_of_five() -> None:
    assert lives.LOOP == 5


def test_the_worker_that_passes_the_point_is_killed_and_nothing_else(world: World) -> None:
    workers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        stage = world.stage("kill-worker")
        stage.hit = {**stage.hit, "pid": workers[0].pid}
        world.all[0].others = tuple(worker.pid for worker in workers)
        run(lives.kill_worker(stage, 0.0))
        assert (workers[0].wait(10), workers[1].poll()) == (-signal.SIGKILL, None)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert world.events == ["worker-killed", "pipeline-continued"]


class Listing:
    """A coordinator that lists transactions in these states; stands in for `Coordinator`."""

    def __init__(self, *states: str) -> None:
        self.states = states

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def listed(self, prefix: str) -> list[Transaction]:
        return [Transaction(f"{prefix}{n}", n, -1, state) for n, state in enumerate(self.states)]


@pytest.mark.parametrize(
    ("states", "fails", "events"),
    [
        (("CompleteCommit", "Ongoing", "PrepareCommit"), False, ["hijacked", "hijacked"]),
        (("CompleteCommit", "Empty", "Dead"), False, ["nemesis-idle"]),
        ((), False, ["nemesis-idle"]),
        (("Ongoing",), True, ["hijack-failed", "nemesis-idle"]),
    ],
)
def test_a_stranger_takes_the_transactions_that_have_not_ended_and_says_when_it_took_none(
    world: World, monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...], fails: bool, events: list[str]
) -> None:
    taken: list[str] = []

    class Stranger:
        def __init__(self, settings: dict[str, str]) -> None:
            self.name = settings["transactional.id"]

        def init_transactions(self, _limit_s: float) -> None:
            if fails:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            taken.append(self.name)

    monkeypatch.setattr(servers, "Coordinator", lambda _where: Listing(*states))
    monkeypatch.setattr(servers, "Producer", Stranger)
    run(servers.hijack(world.stage("hijack", SimpleNamespace(bootstrap_servers="localhost:1")), 0.0))
    assert world.events == [*events, "pipeline-continued"]
    assert len(taken) == events.count("hijacked")


def test_a_session_of_the_pipelines_is_killed_and_where_there_is_none_that_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SimpleNamespace(pid=11, killed=[], cmdline=lambda: ["postgres: root postgres 127.0.0.1(4711) idle"])
    session.kill = lambda: session.killed.append(True)
    other = SimpleNamespace(pid=12, cmdline=lambda: ["postgres: root postgres 127.0.0.1(4712) idle"])
    monkeypatch.setattr(servers.psutil, "Process", lambda _pid: SimpleNamespace(children=lambda: [other, session]))
    world.all[0].others = (5,)
    for ports, told in (({4711}, "session-killed"), ({4713}, "nemesis-idle")):
        monkeypatch.setattr(servers, "_ports", lambda _pid, ports=ports: ports)
        run(servers.kill_session(world.stage("kill-session", Server()), 0.0))
        assert world.events == [told, "pipeline-continued"]
        world.events.clear()
    assert session.killed == [True]


def test_a_worker_that_is_none_of_the_pipelines_is_not_killed(world: World) -> None:
    run(lives.kill_worker(world.stage("kill-worker"), 0.0))
    assert world.events == ["nemesis-idle", "pipeline-continued"]


@pytest.fixture
def executors() -> Iterator[list[tuple[subprocess.Popen[str], int]]]:
    """Two processes that look like executors, and the pid of the worker below each, in the order of their pids."""
    code = "import subprocess as s, sys; p = s.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    command = [sys.executable, "-c", code, lives.EXECUTOR]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [(each, int(each.stdout.readline())) for each in started if each.stdout is not None]
    yield sorted(found, key=lambda each: each[0].pid)
    for each, worker in found:
        os.kill(worker, signal.SIGKILL)
        each.kill()
        each.communicate()


@pytest.mark.parametrize("passed_by", ["the driver", "the second's worker"])
def test_the_executor_whose_worker_passes_the_point_is_killed_or_else_the_first_and_no_other(
    world: World, executors: list[tuple[subprocess.Popen[str], int]], passed_by: str
) -> None:
    (first, _), (second, worker) = executors
    stage = world.stage("kill-executor")
    stage.hit = {**stage.hit, "pid": os.getpid() if passed_by == "the driver" else worker}
    world.all[0].others = (second.pid, os.getpid(), first.pid, worker)
    run(lives.kill_executor(stage, 0.0))
    killed, spared = (first, second) if passed_by == "the driver" else (second, first)
    assert (killed.wait(10), spared.poll()) == (-signal.SIGKILL, None)
    assert (world.events, world.all[0].thawed) == (["executor-killed", "pipeline-continued"], 1)


def test_where_no_executor_is_beside_the_driver_that_is_told_and_the_pipeline_goes_on(world: World) -> None:
    run(lives.kill_executor(world.stage("kill-executor"), 0.0))
    assert (world.events, world.all[0].thawed) == (["nemesis-idle", "pipeline-continued"], 1)


def test_a_run_has_executors_of_its_own_where_a_fault_kills_one_and_nowhere_else() -> None:
    spark = {"jars": ("a.jar",), "driver_jars": ("b.jar",), "jvm_options": ("-XX:SharedArchiveFile=classes.jsa",)}
    plain = Cell("kafka", "exactly-once", "two-phase", faults=("mid-write:kill",), master="local[3]")
    assert placed(plain, spark) == {**spark, "master": "local[3]"}
    killing = replace(plain, faults=("mid-write:kill", "mid-write:kill-executor@after=2"))
    assert placed(killing, spark) == {**spark, "master": EXECUTORS, "jvm_options": ()}
    asked_for = replace(killing, master="local-cluster[3,2,2048]")
    assert placed(asked_for, spark)["master"] == "local-cluster[3,2,2048]"


def test_the_executors_of_somebody_elses_cluster_are_not_killed() -> None:
    cell = Cell("kafka", "exactly-once", "two-phase", faults=("mid-write:kill-executor",), master="spark://host:7077")
    with pytest.raises(UserError, match="the executors of spark://host:7077 are not ours to kill") as refused:
        require_possible([cell])
    assert refused.value.exit_code == 2
    require_possible([replace(cell, faults=("mid-write:kill",)), replace(cell, master="local[2]")])


@pytest.mark.parametrize("act", [servers.kill_broker, servers.kill_postgres])
def test_a_killed_server_is_started_again_also_when_the_run_ends_before(world: World, act: Any) -> None:
    for cut_short in (False, True):
        server = Server()
        acting = act(world.stage("kill", server), 0.0)
        next(acting)
        assert (server.said, world.all[0].alive) == (["kill"], True)
        acting.close() if cut_short else run(acting)
        assert server.said == ["kill", "start"]


def test_a_stopped_broker_is_continued_also_when_the_run_ends_before(world: World) -> None:
    server = Server()
    stage = world.stage("stop-broker", server)
    acting = servers.stop_broker(stage, 3600.0)
    next(acting)
    assert (server.said, world.all[0].thawed, stage.held) == (["pause"], 1, True)
    acting.close()
    assert (server.said, stage.held) == (["pause", "resume"], False)


@pytest.mark.parametrize(("point", "possible"), [("after-prepare", False), ("mid-commit", True)])
def test_a_task_that_holds_the_lock_of_a_whole_database_is_never_made_a_zombie(point: str, possible: bool) -> None:
    why = why_not(parse_fault(f"{point}:zombie"), SINKS["sqlite"], SINKS["sqlite"].supports[0])
    assert (why is None) == possible
    assert possible or "holds the lock" in str(why)
