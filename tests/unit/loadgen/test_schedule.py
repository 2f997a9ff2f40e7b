"""The order and the times of a whole load."""

import hashlib
import tracemalloc

import numpy as np
import pytest

from loadgen.pacing import Rate, parse_shape
from loadgen.schedule import Block, schedule
from loadgen.session import encode

SHAPES = ["constant", "ramp:200", "burst:8000:1:4"]


def whole(seed: int, sessions: int, rate: Rate = 2_000, shape: str = "constant", per_block: int = 2_000) -> Block:
    blocks = list(schedule(seed, sessions, parse_shape(shape, rate, sessions * 100), 100, per_block))
    return Block(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))


def spreads_s(load: Block) -> np.ndarray:
    """Time from start event to end event, by session."""
    start = load.due_us[load.seq == 0][np.argsort(load.session[load.seq == 0])]
    end = load.due_us[load.seq == 99][np.argsort(load.session[load.seq == 99])]
    return (end - start) / 1e6


@pytest.mark.parametrize("shape", SHAPES)
def test_every_session_has_its_hundred_events_once_and_in_order(shape: str) -> None:
    load = whole(5, 200, shape=shape)
    by_session = np.argsort(load.session, kind="stable")
    assert (load.session[by_session] == np.repeat(np.arange(200), 100)).all()
    assert (load.seq[by_session] == np.tile(np.arange(100), 200)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_event_k_is_due_exactly_where_the_shape_reaches_k(shape: str) -> None:
    load = whole(5, 200, shape=shape)
    exact_us = parse_shape(shape, 2_000, 20_000).inverse(np.arange(20_000, dtype=np.float64)) * 1e6
    assert np.abs(load.due_us - exact_us).max() <= 1
    assert (np.diff(load.due_us) >= 0).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("per_block", [7, 2_000])
def test_sessions_that_never_end_keep_the_rate(shape: str, per_block: int) -> None:
    pace = parse_shape(shape, 2_000, 100 * 200)
    load = Block(*map(np.concatenate, zip(*schedule(5, 200, pace, 3, per_block), strict=True)))
    by_session = np.lexsort((load.seq, load.session))
    assert (load.session[by_session] == np.repeat(np.arange(200), 3)).all()
    assert (load.seq[by_session] == np.tile(np.arange(3), 200)).all()
    assert np.abs(load.due_us - pace.inverse(np.arange(600, dtype=np.float64)) * 1e6).max() <= 1


def test_sessions_away_from_the_edges_spread_over_one_to_two_seconds() -> None:
    middle = spreads_s(whole(5, 1_200))[200:1_000]
    assert 0.9 < middle.min() < 1.1
    assert 1.9 < middle.max() < 2.1
    assert middle.mean() == pytest.approx(1.5, abs=0.05)


def test_gaps_between_events_vary_within_and_between_sessions() -> None:
    load = whole(5, 400)
    gaps, others = (np.diff(load.due_us[load.session == session]) for session in (200, 201))
    assert gaps.max() > 3 * gaps.min()
    assert (gaps != others).sum() > 80


def test_many_sessions_are_open_at_the_same_time() -> None:
    load = whole(5, 400)
    opened_or_closed = np.select([load.seq == 0, load.seq == 99], [1, -1], 0)
    assert np.cumsum(opened_or_closed)[10_000:30_000].mean() == pytest.approx(2_000 / 100 * 1.5, rel=0.2)


def test_at_few_events_per_second_sessions_take_longer() -> None:
    assert spreads_s(whole(5, 5, rate=20)).min() > 4.0


def test_a_flat_out_load_is_due_at_once_and_interleaved() -> None:
    flat_out, paced = whole(5, 1_000, rate="max"), whole(5, 1_000, rate=20_000)
    assert not flat_out.due_us.any()
    assert (flat_out.session == paced.session).all()
    assert len(set(flat_out.session[50_000:50_300].tolist())) > 100


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("per_block", [1, 7, 199])
def test_the_schedule_does_not_depend_on_the_block_size(shape: str, per_block: int) -> None:
    cut, uncut = whole(9, 200, shape=shape, per_block=per_block), whole(9, 200, shape=shape)
    assert all((a == b).all() for a, b in zip(cut, uncut, strict=True))


def test_the_same_seed_makes_the_same_bytes_on_every_machine() -> None:
    load = whole(42, 50)
    keys, values = encode(42, load.session, load.seq, load.due_us)
    digest = hashlib.sha256("\n".join([*keys, *values]).encode()).hexdigest()
    assert digest == "5455535cf526fed299178fcd37922a526fa40cad3ce9667aa20909c57b115684"


def test_another_seed_makes_another_order_and_other_values() -> None:
    one, other = whole(1, 50), whole(2, 50)
    assert (one.session != other.session).any()
    assert encode(0, one.session, one.seq, one.due_us) != encode(0, other.session, other.seq, other.due_us)


def test_planning_needs_memory_for_one_block_only() -> None:
    tracemalloc.start()
    try:
        planned = sum(len(block.seq) for block in schedule(1, 20_000, parse_shape("constant", 20_000, 2_000_000)))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert planned == 2_000_000
    assert peak_bytes < 40e6
