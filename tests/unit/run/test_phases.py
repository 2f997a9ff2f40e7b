"""The phases of a run: interruption, servers that are down, preloading, and the display."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen.errors import LedgerError
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.engine import SPARK
from oncebench.live.status import DRAINING, LOADING, STARTING, STOPPING
from oncebench.run import cell as module
from oncebench.run import limits
from oncebench.run.attempts.supervisor import PipelineEnded
from oncebench.run.extra_load import warm_up
from oncebench.run.limits import Limits
from oncebench.run.progress_timeout import ProgressTimeout
from tests.unit.run.fake_run import CELL, FakeRun


@pytest.mark.parametrize(("starting", "end"), [(True, "start-timed-out"), (False, "stalled")])
def test_only_a_run_whose_pipeline_is_not_starting_has_stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting: bool, end: str
) -> None:
    monkeypatch.setattr(limits, "STANDSTILL_S", 0.1)
    run = FakeRun(tmp_path, cell := replace(CELL, sessions=0), limits=Limits(cell, 0.1))
    run.fake.starting = starting
    run._drain()
    assert run.fake.noted == [end]


def drained(folder: Path, interrupted: bool = False, read: int = 10_000) -> FakeRun:
    """A run whose load is over, with two random kills left.

    Its pipeline has read `read` of 10,000 events.
    """
    run = FakeRun(folder, replace(CELL, sessions=0, random_kills=2), interrupted)
    run.progress.position = {"0": read}
    run.fake.child, run.fake.is_running, run.fake.random_kills_left = object(), True, 2
    run._drain()
    return run


def test_kills_that_are_left_when_all_is_read_come_at_once(tmp_path: Path) -> None:
    assert drained(tmp_path).fake.noted == ["watched", "watched", "drained"]


@pytest.mark.parametrize(("restarts_after", "sent"), [((0, 0), 2), ((0, 1, 1, 1), 4), ((1, 1, 1), 3)])
def test_windows_close_with_two_events_in_a_row_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts_after: tuple[int, ...], sent: int
) -> None:
    quick = replace(module.WORKLOADS["windows"], closing_s=0.2)
    monkeypatch.setattr(module, "WORKLOADS", {**module.WORKLOADS, "windows": quick})
    run = FakeRun(tmp_path, replace(CELL, sessions=0, workload="windows"))
    run.progress.position = {"0": 10_000}
    run.fake.child, run.fake.is_running = object(), True
    numbers: list[int] = []
    began = time.monotonic()
    times_us: set[int] = set()

    def send(_kafka: object, _topic: str, _folder: Path, number: int, at_us: int, _stop: object) -> int:
        assert time.monotonic() >= began + 0.2, "no closing event before the watermark may pass the load"
        run.fake.restarts = restarts_after[len(numbers)]
        numbers.append(number)
        times_us.add(at_us)
        return 1

    monkeypatch.setattr(module, "send_closing", send)
    run._drain()
    assert (numbers, run.fake.noted[-1]) == (list(range(sent)), "drained")
    assert len(times_us) == 1, "a later time would close the window of an event before"


@pytest.mark.parametrize(("interrupted", "read", "end"), [(True, 10_000, "interrupted"), (False, 9_999, "stalled")])
def test_kills_keep_their_times_while_there_is_work_and_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool, read: int, end: str
) -> None:
    monkeypatch.setattr(limits, "STANDSTILL_S", 0.1)
    monkeypatch.setattr(module, "INTERRUPTED_DRAIN_S", 0.1)
    run = drained(tmp_path, interrupted, read)
    assert (run.fake.random_kills_left, run.fake.noted[-1]) == (2, end)


@pytest.mark.parametrize("load_started", [False, True])
def test_an_interrupted_start_has_nothing_to_report(tmp_path: Path, load_started: bool) -> None:
    run = FakeRun(tmp_path, interrupted=True)
    if load_started:
        run._start_load()
    before = "pipeline ran" if load_started else "load began"
    with pytest.raises(UserError, match=f"^interrupted before the {before}: there is nothing to report$") as caught:
        run._require(STARTING, lambda: False, ProgressTimeout(120.0))
    assert caught.value.exit_code == ExitCode.INTERRUPTED


def test_an_interrupted_generator_is_not_blamed_for_an_empty_load(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^interrupted before the load began"):
        FakeRun(tmp_path, interrupted=True)._load()


def test_an_interruption_is_recorded_once_and_ends_the_faults(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, interrupted=True)
    for phase in (LOADING, DRAINING):
        assert not run.phases.wait(phase, lambda: False, ProgressTimeout(1))
    assert run.fake.noted == ["faults ended", "interrupted"]


@pytest.mark.parametrize("interrupted", [False, True])
def test_no_request_is_sent_to_a_server_that_a_fault_keeps_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    run = FakeRun(tmp_path, interrupted=interrupted)
    run.phases._interruption_noted = interrupted  # a fault that begins after the interruption was recorded
    run.fake.child, run.fake.server_down, run.fake.is_running = object(), True, True
    monkeypatch.setattr(module, "WARM_UP_BATCHES", 1)
    monkeypatch.setattr(module, "send_warm_up", lambda *_: run.fake.noted.append("sent") or 1)
    monkeypatch.setattr(run.progress, "has_read_ahead", lambda: True)
    run._warm_up()
    assert run.fake.noted == ["faults ended" if interrupted else "watched", "sent"]


def test_preloading_without_progress_is_an_error_with_remedy_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = preloading(tmp_path, monkeypatch)
    monkeypatch.setattr(run.phases, "wait", lambda *_: False)
    with pytest.raises(UserError) as caught:
        run._preload()
    assert str(caught.value) == (
        "the pipeline made no progress for 170 s in the phase 'preloading'. Is the machine busy? Run it again when it "
        "is not or with fewer --open-sessions. A longer --start-timeout, where the command has it, gives it more "
        f"time. See {tmp_path}/logs/pipeline.log"
    )


def test_a_users_function_that_never_returns_is_named_beside_a_busy_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun(tmp_path, replace(CELL, black_box="{}"))
    monkeypatch.setattr(module, "send_warm_up", lambda *_: 1)
    monkeypatch.setattr(run.phases, "wait", lambda *_: False)
    monkeypatch.setattr(run.phases, "wait_for_servers", lambda *_: None)
    with pytest.raises(UserError, match="Run it again when it is not, and check that the sink's function returns"):
        run._warm_up()


def test_a_pipeline_that_died_before_it_got_on_is_quoted_and_no_busy_machine_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = preloading(tmp_path, monkeypatch)
    run.fake.last_death = "stopped: QueryDied: the disk is full."
    monkeypatch.setattr(run.phases, "wait", lambda *_: False)
    with pytest.raises(UserError, match=r"Its last words: stopped: QueryDied: the disk is full or with") as caught:
        run._preload()
    assert "busy" not in str(caught.value)


def test_a_pipeline_that_ends_for_good_after_the_load_began_leaves_a_run_that_can_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun(tmp_path)
    monkeypatch.setattr(run.processes, "stop", lambda name: run.fake.noted.append(f"{name} stopped"))
    run._end_early(PipelineEnded("the pipeline stopped: PermanentFailure: no"))
    assert run.fake.noted == ["generator stopped", "stopped", "stalled"]
    assert not run._load_began()
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "plan.json").write_text("{}")
    assert run._load_began()


def test_only_the_first_attempt_and_its_batches_are_progress_of_preloading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = preloading(tmp_path, monkeypatch)
    timeouts: list[ProgressTimeout] = []
    monkeypatch.setattr(run.phases, "wait", lambda _phase, _done, timeout: timeouts.append(timeout) or False)
    with pytest.raises(UserError):
        run._preload()
    (timeout,) = timeouts
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(timeout, "_clock", lambda: clock.now)
    timeout._until = 170.0

    def expired_at(now: float) -> bool:
        clock.now = now
        return timeout.expired()

    run.fake.is_running = True
    assert not expired_at(160.0)
    run.progress.position = {"0": 5000}
    assert not expired_at(320.0)
    run.fake.is_running, run.fake.restarts = False, 1
    assert not expired_at(480.0)
    run.fake.is_running, run.fake.restarts = True, 1
    assert not expired_at(640.0)
    assert expired_at(651.0)


def preloading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    """A run that preloads 10,000 sessions."""
    monkeypatch.setattr(module, "open_sessions", lambda *_: 0)
    monkeypatch.setattr(module, "replace", lambda value, **_: value)
    return FakeRun(folder, replace(CELL, open_sessions=10_000))


def test_warm_up_events_that_cannot_be_sent_are_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LedgerError("no room for a ledger")

    monkeypatch.setattr(warm_up, "run_load", fail)
    for send in (warm_up.send_warm_up, warm_up.open_sessions):
        with pytest.raises(UserError, match=r"^the events before or after .* could not be sent: no room for a ledger$"):
            send(KafkaAccess("x:1"), "in", tmp_path, 1)


def test_a_setting_that_the_load_refuses_is_a_user_error(tmp_path: Path) -> None:
    access = KafkaAccess("x:1", settings={"message.timeout.ms": "60000"})
    with pytest.raises(UserError, match=r"could not be sent: kafka: 'message\.timeout\.ms' cannot be set"):
        warm_up.send_warm_up(access, "in", tmp_path, 1)


def test_a_warm_up_that_ends_early_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = SimpleNamespace(acknowledged=7, error="orders.jsonl has changed")
    monkeypatch.setattr(warm_up, "run_load", lambda *_, **__: ended)
    with pytest.raises(UserError, match=r"could not be sent: orders\.jsonl has changed$"):
        warm_up.send_warm_up(KafkaAccess("x:1"), "in", tmp_path, 1)


def test_an_interruption_ends_the_warm_up_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def sent(_config: object, stop: object, abandon: object, **_: object) -> SimpleNamespace:
        given.extend((stop, abandon))
        return SimpleNamespace(acknowledged=1, error=None)

    monkeypatch.setattr(warm_up, "run_load", sent)
    monkeypatch.setattr(module, "replace", lambda value, **_: value)
    lab = SimpleNamespace(own_kafka=None, kafka=SimpleNamespace(access=KafkaAccess("b:1")))
    run = FakeRun(tmp_path, replace(CELL, open_sessions=10_000), interrupted=True, lab=lab)
    with pytest.raises(UserError):
        run._warm_up()
    with pytest.raises(UserError):
        run._preload()
    assert given == [run.interrupted] * 4


def loading(folder: Path, started_s_ago: float | None, **changes: Any) -> FakeRun:
    """A run with a warm-up time of 6 s whose load began so long ago; None: not yet."""
    if started_s_ago is not None:
        (folder / "ledger").mkdir()
        plan = {"started_us": time.time_ns() // 1000 - round(started_s_ago * 1e6)}
        (folder / "ledger" / "plan.json").write_text(json.dumps(plan))
    return FakeRun(folder, replace(CELL, warmup_s=6.0, rate=changes.pop("rate", 500.0), **changes))


def test_a_generator_without_answers_is_stopped_and_the_run_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = loading(tmp_path, 1.0)
    monkeypatch.setattr(limits, "SERVER_LIMIT_S", 0.1)
    line = {"t_us": 1, "planned_by_now": 10, "acknowledged": 4, "failed": 0}
    (tmp_path / "load.jsonl").write_text(json.dumps(line) + "\n")
    run._load()
    assert (run.ended, run.fake.noted) == (["the generator"], ["load-done"])
    assert "Kafka acknowledged nothing of the load for 0.1 s, so the load was stopped." in caplog.text


def test_a_fault_without_a_broker_is_no_standstill_of_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    run = loading(tmp_path, 1.0, faults=("mid-write:kill", "after-commit:stop-broker:40"))
    monkeypatch.setattr(run.phases, "wait", lambda _phase, _done, timeout: waited.append(timeout.limit_s) or True)
    run._load()
    assert waited == [limits.SERVER_LIMIT_S + 40.0]


def test_the_warm_up_is_displayed_with_its_number_of_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(tmp_path)
    monkeypatch.setattr(module, "send_warm_up", lambda *_: 1000)
    monkeypatch.setattr(run.progress, "has_read_ahead", lambda: True)
    run._warm_up()
    phase = run.displayed[-1].phase
    assert (phase.name, phase.waits_for) == ("warming up", "30 sessions ahead of the load")


def test_a_pipeline_is_profiled_only_while_it_runs_and_is_measured(tmp_path: Path) -> None:
    run, seen = FakeRun(tmp_path), list[object]()
    run.during = seen.append
    run.fake.child = "the pipeline"
    run.fake.is_running = True
    run._look(LOADING)
    assert seen == []  # in the warm-up
    run.measurement.warm = True
    run._look(LOADING)
    run._look(STOPPING)
    run.fake.is_running = False
    run._look(LOADING)
    assert seen == ["the pipeline"]


@pytest.mark.parametrize(("rate", "until_us"), [("max", 7), (1000.0, None)])
def test_only_a_flat_out_load_is_priced_until_its_last_row(tmp_path: Path, rate: float | str, until_us: int) -> None:
    (tmp_path / "observer.jsonl").write_text('{"visible": 1, "last_row_us": 7}\n')
    asked: list[int | None] = []
    run = FakeRun(tmp_path, replace(CELL, rate=rate), engine=SPARK)
    parts: Any = run
    parts.meters = SimpleNamespace(uses=lambda until_us: asked.append(until_us) or {})
    parts._kafka = dict
    assert run._result(None).measured_until_us == (until_us or 0)
    assert asked == [until_us]
