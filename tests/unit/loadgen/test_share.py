"""The shares of several generators, and their common start."""

import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.config import LoadConfig
from loadgen.errors import ConfigError, LoadError
from loadgen.ledger import Ledger, Plan
from loadgen.pacing import Rate, parse_shape
from loadgen.plan import ALONE_LEAD_US, LEAD_US, meet, plan_load
from loadgen.schedule import Block, schedule
from loadgen.session import encode
from loadgen.share import Share

NOW_US = 1_000_000_000
SHAPES = st.sampled_from(["constant", "ramp:100", "burst:4000:1:2"])


def planned(seed: int, sessions: int, rate: Rate, shape: str, shares: Iterable[Share]) -> list[Block]:
    """The events of each share of a plan, which is made in several blocks."""
    blocks = [*schedule(seed, sessions, parse_shape(shape, rate, sessions * 100), 100, 17)]
    return [
        Block(*(np.concatenate(columns) for columns in zip(*map(share.of, blocks), strict=True))) for share in shares
    ]


def events(block: Block) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in block), strict=True))


@settings(max_examples=40)
@given(seed=st.integers(0, 2**64 - 1), sessions=st.integers(30, 60), generators=st.integers(1, 64), shape=SHAPES)
def test_shares_are_a_partition_of_the_plan(seed: int, sessions: int, generators: int, shape: str) -> None:
    every = [Share(number, generators) for number in range(1, generators + 1)]
    one, *shares = planned(seed, sessions, 1_000.0, shape, [Share(), *every])
    whole = events(one)
    assert sorted(event for share in shares for event in events(share)) == sorted(whole)
    owners = [set(share.session.tolist()) for share in shares]
    assert sum(map(len, owners)) == len(set().union(*owners)) == sessions, "a session is in one share"
    assert [len(own) for own in owners] == [share.sessions(sessions) for share in every]
    assert all((np.diff(share.due_us) >= 0).all() for share in shares), "each share is in the order of its times"


@given(sessions=st.integers(1, 10**8), generators=st.integers(1, 64))
def test_shares_differ_by_one_session_at_most(sessions: int, generators: int) -> None:
    counts = [Share(number, generators).sessions(sessions) for number in range(1, generators + 1)]
    assert sum(counts) == sessions
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("shape", ["constant", "ramp:1000", "burst:8000:1:4"])
def test_each_share_has_its_part_of_the_rate_in_every_second(shape: str) -> None:
    whole, *shares = planned(5, 600, 3_000.0, shape, [Share(), Share(1, 3), Share(2, 3), Share(3, 3)])
    for own in shares:
        seconds = np.arange(1, int(whole.due_us[-1] // 1e6))
        due, of = (np.diff(np.searchsorted(each.due_us, seconds * 1_000_000)) for each in (own, whole))
        assert np.abs(due - of / 3).max() < 0.15 * of.max()


def config(folder: Path, number: int, generators: int) -> LoadConfig:
    more = {"meeting_dir": folder / "meeting"} if generators > 1 else {}
    return LoadConfig("x:1", "in", 1_000.0, 7, folder / f"ledger-{number}", seed=9, generator=number,
                      generators=generators, **more)  # fmt: skip


def load_of(folder: Path, generators: int) -> list[Ledger]:
    """The ledgers of generators that plan a load at the same time."""
    made: dict[int, Ledger] = {}

    def plan(number: int) -> None:
        made[number] = plan_load(config(folder, number, generators), lambda: NOW_US)

    threads = [threading.Thread(target=plan, args=(number,)) for number in range(1, generators + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [made[number] for number in sorted(made)]


def records(ledger: Ledger) -> set[tuple[str, str]]:
    """Keys and values of the events, as if the load had started at 0."""
    due_us = ledger.scheduled_us - ledger.plan.started_us
    return set(zip(*encode(ledger.plan.seed, ledger.session, ledger.seq, due_us), strict=True))


def test_two_generators_make_the_events_of_one(tmp_path: Path) -> None:
    (one,) = load_of(tmp_path / "one", 1)
    two = load_of(tmp_path / "two", 2)
    assert records(one) == records(two[0]) | records(two[1])
    assert len(records(one)) == len(one) == len(two[0]) + len(two[1]) == 700
    assert [(each.plan.sessions, each.plan.events, each.plan.generator) for each in two] == [(7, 400, 1), (7, 300, 2)]


def test_generators_agree_on_the_start_and_one_waits_for_nobody(tmp_path: Path) -> None:
    (one,) = load_of(tmp_path / "one", 1)
    assert one.plan.started_us == NOW_US + ALONE_LEAD_US + 700 // 50
    starts = {each.plan.started_us for each in load_of(tmp_path / "three", 3)}
    assert starts == {NOW_US + LEAD_US + 300 // 50}


def test_a_load_can_begin_at_a_given_event_time(tmp_path: Path) -> None:
    config = LoadConfig("localhost:9092", "in", "max", sessions=1, ledger_dir=tmp_path, seed=9, events_per_session=1)
    ledger = plan_load(config, lambda: NOW_US, started_us=7)
    assert (ledger.plan.started_us, ledger.scheduled_us.tolist()) == (7, [7])


def test_the_plan_of_one_generator_names_no_share(tmp_path: Path) -> None:
    (one,) = load_of(tmp_path, 1)
    assert "generator" not in (one.directory / "plan.json").read_text()
    assert (
        Ledger.open(one.directory).plan == one.plan == Plan(9, 1_000.0, "constant", 7, 700, "in", one.plan.started_us)
    )


@pytest.mark.parametrize(("number", "missing"), [(1, "ready-2"), (2, "started_us")])
def test_a_generator_that_waits_in_vain_names_what_is_missing(tmp_path: Path, number: int, missing: str) -> None:
    said = rf"^generator {number} of 2 waited 0\.02 s for the others: {tmp_path} has no {missing}\. See their logs$"
    with pytest.raises(LoadError, match=said):
        meet(tmp_path, Share(number, 2), 0, lambda: NOW_US, lambda: False, limit_s=0.02)


def test_a_stop_ends_the_wait_for_the_others(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"^generator 2 of 2 was stopped before the load began$"):
        meet(tmp_path, Share(2, 2), 0, lambda: NOW_US, lambda: True)


def test_a_used_meeting_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ready-2").touch()
    with pytest.raises(LoadError, match="was used by an earlier load; choose another meeting_dir or delete it"):
        meet(tmp_path, Share(2, 2), 0, lambda: NOW_US, lambda: False)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"generator": 3, "generators": 2}, "generator: 3 is more than generators, 2"),
        ({"generators": 8}, "generators: 8 are more than the 7 sessions of the load"),
        ({"generators": 65}, "generators: 65 is not a whole number from 1 to 64"),
        ({"generators": 2}, "meeting_dir: several generators need it"),
        ({"meeting_dir": "there"}, "meeting_dir: several generators need it"),
    ],
)
def test_an_impossible_share_is_refused(tmp_path: Path, fields: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LoadConfig("x:1", "in", 1_000.0, 7, tmp_path, **fields)  # type: ignore[arg-type]
