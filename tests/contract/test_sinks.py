"""Every sink keeps every guarantee and variant that it declares. No sink is named here."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.errors import PipelineError, RefusedStart
from oncebench.delivery.failpoints import POINTS
from oncebench.delivery.journal import open_journal
from oncebench.experiments.batches import generated_rows
from oncebench.lab.lab import Lab
from oncebench.sinks.registry import PACKAGES, SINKS
from tests.contract import skips
from tests.contract.attempts import PARTITIONS, ROW, Made, Output, frame, identity, keeps, make_output, rows_for
from tests.contract.skips import skip_if
from tests.spark_sessions import sinkless, spark_session

# A test starts up to 16 drivers. Delta's commits make that five minutes on a busy machine.
pytestmark = [pytest.mark.contract, pytest.mark.spark, pytest.mark.timeout(900)]

DECLARED = [
    (kind.name, support)
    for kind in SINKS.values()
    for support in kind.supports
    if support.expected_anomaly is None and not kind.certify_only
]
EXACT = [each for each in DECLARED if each[1].guarantee == EXACTLY_ONCE]
# Sinks that declare exactly-once and are broken on purpose. `test_zombie` covers those that need a zombie.
BROKEN = [
    (kind.name, support)
    for kind in SINKS.values()
    for support in kind.supports
    if support.expected_anomaly is not None and not any("zombie" in fault for fault in support.triggering_faults)
]
# One duplicates rows in every run of the tests, so the contract can fail; `test_killed_jobs` has another.
FIRST_BROKEN = BROKEN[:1]
# Their guarantee forbids duplicates and rests on one driver.
ONE_DRIVER = [(sink, support) for sink, support in DECLARED if support.variant in ("two-phase", "idempotent", "claim")]
DEFAULTS = [each for each in EXACT if each[1].default]
# The steps of the protocol; `after-commit-log` belongs to Spark and comes after the protocol.
STEPS = [point for point in POINTS if point != "after-commit-log"]
HOSTILE = (
    "'; DROP TABLE rows; --", '"quoted"', "back\\slash", "\\N", "\\.", "tab\there", "line\nbreak", "\r\n",
    "nul\x00byte", "emoji \U0001f986\U0001f469\u200d\U0001f467", "right-to-left \u202eabc\u202c \u05e9\u05dc",
    "k" * 10_000, "../../etc/passwd", "%2e%2e%2f", "", " ", "a,b;c|d", "{}", "NULL", "\ufeffbom", "\x7f\x1b[31m",
)  # fmt: skip

Make = Callable[[str, Support], Output]


def called(case: tuple[str, Support]) -> str:
    return f"{case[0]}-{case[1].guarantee}-{case[1].variant}"


def all_but_slow(slow: list[tuple[str, Support]]) -> pytest.MarkDecorator:
    """Every case; `make test` leaves these out."""
    cases = [pytest.param(each, marks=pytest.mark.slow if each in slow else ()) for each in DECLARED]
    return pytest.mark.parametrize("case", cases, ids=called)


WEAK = [each for each in DECLARED if each not in EXACT]
# A commit of Delta takes seconds.
every = all_but_slow([each for each in WEAK if each[0] == "delta"])
# `test_killed_jobs` kills the other sinks at the same steps, with SIGKILL and in a tenth of the time. Kafka is slow
# there, and it lacks the sinks that commit a whole batch. PostgreSQL's default shows that both tests agree.
ELSEWHERE = [
    each
    for each in DECLARED
    if each[1].variant == "native"
    or not (each[0] == "kafka" or SINKS[each[0]].batch_atomic or (each[0] == "postgres" and each in DEFAULTS))
]
dying = all_but_slow([*ELSEWHERE, *(each for each in WEAK if SINKS[each[0]].batch_atomic)])
# The other variants of a sink store the same rows.
large = all_but_slow([each for each in DECLARED if each not in DEFAULTS])
exact = pytest.mark.parametrize("case", EXACT, ids=called)
dying_twice = pytest.mark.parametrize(
    "case", [pytest.param(each, marks=pytest.mark.slow if each in ELSEWHERE else ()) for each in EXACT], ids=called
)
# They keep no marks by task number.
unnumbered = pytest.mark.parametrize(
    "case",
    [
        pytest.param(each, marks=() if each[0] == "kafka" else pytest.mark.slow)
        for each in DECLARED
        if not SINKS[each[0]].commits_per_task(each[1])
    ],
    ids=called,
)
one_driver = pytest.mark.parametrize("case", ONE_DRIVER, ids=called)


@pytest.fixture(scope="module")
def spark(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session with the settings of every sink."""
    settings = {name: value for kind in SINKS.values() for name, value in kind.spark.items()}
    with spark_session(sinkless(lab, tmp_path_factory.mktemp("spark"), SINKS.values()), settings) as started:
        yield started


@pytest.fixture
def make(lab: Lab, spark: SparkSession, services: None, tmp_path: Path) -> Make:
    def made(sink: str, support: Support) -> Output:
        if SINKS[sink].missing:
            pytest.skip(f"{sink} is not installed: {SINKS[sink].missing}")
        name = f"c-{uuid.uuid4().hex[:10]}"
        return make_output(SINKS[sink], support, lab, spark, tmp_path / name, name)

    return made


def batch(number: int) -> list[list[Made]]:
    return [rows_for(f"b{number}-{part}") for part in range(PARTITIONS)]


def flat(*batches: list[list[Made]]) -> list[Made]:
    return [row for each in batches for part in each for row in part]


@every
def test_batches_are_visible_once(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    half: list[list[Made]] = [rows_for("half"), []]
    batches: list[list[list[Made]]] = [batch(0), [[], []], half, batch(3)]
    for number, parts in enumerate(batches):
        assert output.deliver(number, parts)
    assert output.visible() == Counter(flat(*batches))
    assert output.leftovers() == []


def suffer_every_death(output: Output) -> None:
    """Lets a batch die at each step of the protocol, replays it, and checks the guarantee."""
    sent = {point: flat(batch(number)) for number, point in enumerate(STEPS)}
    survived = []
    for number, point in enumerate(STEPS):
        if output.deliver(number, batch(number), die_at=point):
            survived.append(point)
        else:
            assert output.deliver(number, batch(number))
    last = flat(batch(len(STEPS)))
    assert output.deliver(len(STEPS), batch(len(STEPS)))
    visible = output.visible()
    broken = {point: keeps(output.promise, visible, rows) for point, rows in sent.items()}
    assert not {point: wrong for point, wrong in broken.items() if wrong}
    assert survived == []  # after the rows: a broken sink may drop a batch whose tasks then never run
    assert all(visible[row] == 1 for row in last)
    assert visible.keys() <= set(last).union(*sent.values()), "rows that were not sent"
    if output.promise == AT_MOST_ONCE:
        assert visible.total() < len(last) * len(sent), "a death after the claim must lose rows"
    if output.promise == AT_LEAST_ONCE:
        assert visible.total() > len(last) * (len(sent) + 1), "a death after the write must duplicate rows"
    if output.promise == EXACTLY_ONCE:
        assert output.leftovers() == []


@dying
def test_a_death_at_any_step_breaks_no_guarantee(make: Make, case: tuple[str, Support]) -> None:
    suffer_every_death(make(*case))


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=() if each in FIRST_BROKEN else pytest.mark.slow) for each in BROKEN], ids=called
)
def test_a_broken_sink_fails_the_contract(make: Make, case: tuple[str, Support]) -> None:
    wrong = {"DUP": "duplicated", "LOSS": "lost"}[str(case[1].expected_anomaly)]
    with pytest.raises(AssertionError, match=wrong):
        suffer_every_death(make(*case))


@unnumbered
def test_any_number_of_tasks_writes_without_marks_per_task(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    parts = [rows_for(f"part {number}") for number in range(PARTITIONS + 3)]
    assert output.deliver(0, parts)
    assert output.visible() == Counter(flat(parts))


@exact
def test_a_finished_batch_may_be_replayed_many_times(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    for _ in range(3):
        assert output.deliver(0, batch(0))
    assert output.visible() == Counter(flat(batch(0)))


@dying_twice
def test_a_death_in_the_replay_breaks_nothing(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    for number, points in enumerate(
        [("mid-write", "after-prepare"), ("after-prepare", "mid-commit"), ("mid-commit", "after-commit")]
    ):
        assert [point for point in points if output.deliver(number, batch(number), die_at=point)] == []
        assert output.deliver(number, batch(number))
    assert output.visible() == Counter(flat(batch(0), batch(1), batch(2)))


@pytest.mark.parametrize("case", [each for each in WEAK if each[1].variant == "claim"], ids=called)
def test_a_claim_that_only_the_sink_has_is_enough(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    skip_if(not output.driver().sink.keeps_marks, skips.NO_CLAIM, *case)
    assert output.deliver(0, batch(0))
    (claim,) = (output.config.checkpoint / "journal").glob("claim-*.json")
    claim.unlink()  # as in a copy of a checkpoint whose journal was copied first
    assert output.deliver(0, batch(0))
    assert output.visible() == Counter(flat(batch(0)))


@exact
def test_a_replay_with_other_rows_writes_nothing(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    skip_if(output.support.variant in ("upsert", "native"), skips.NO_ROWS_TO_COMPARE, *case)
    assert not output.deliver(0, batch(0), die_at="after-commit")
    with pytest.raises(PipelineError, match="Rows and their tasks must depend on the input alone"):
        output.deliver(0, batch(1))
    assert output.visible() == Counter(flat(batch(0)))


@exact
def test_a_replay_with_other_rows_in_one_partition_writes_nothing(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    skip_if(output.support.variant in ("upsert", "native"), skips.NO_ROWS_TO_COMPARE, *case)
    assert not output.deliver(0, [rows_for("there"), []], die_at="after-commit")
    with pytest.raises(PipelineError, match=r"the replay has written nothing"):
        output.deliver(0, [rows_for("other"), rows_for("there")])
    assert output.spark._jsparkSession.sharedState().cacheManager().isEmpty()
    assert output.visible() == Counter(rows_for("there"))


@pytest.fixture(scope="module")
def many(spark: SparkSession) -> tuple[DataFrame, Counter[Made]]:
    rows = generated_rows(spark, 100_000, 7, PARTITIONS)
    return rows, Counter(tuple(row) for row in rows.select(*ROW).collect())


@large
def test_a_batch_of_a_hundred_thousand_rows_is_complete(
    make: Make, case: tuple[str, Support], many: tuple[DataFrame, Counter[Made]]
) -> None:
    rows, wanted = many
    output = make(*case)
    assert output.deliver_frame(0, rows)
    assert output.visible() == wanted


@every
def test_hostile_values_are_read_back_unchanged(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    parts = [[row for key in HOSTILE[at::2] for row in rows_for(key, 2)] for at in range(PARTITIONS)]
    assert output.deliver(0, parts)
    assert output.visible() == Counter(flat(parts))


@pytest.mark.parametrize("case", DEFAULTS, ids=called)
def test_another_number_of_partitions_is_refused(make: Make, case: tuple[str, Support]) -> None:
    output = make(*case)
    assert output.deliver(0, batch(0))
    for partitions in (1, 3):
        with pytest.raises(PipelineError, match="was made with partitions 2"):
            open_journal(output.config.checkpoint, identity(replace(output.config, partitions=partitions)))


@one_driver
def test_of_two_copies_that_start_at_once_one_writes(make: Make, case: tuple[str, Support], tmp_path: Path) -> None:
    output = make(*case)
    assert output.deliver(0, batch(0))
    copy = output.copied(tmp_path / "copy")
    first, second = output.driver(), copy.driver()
    skip_if(output.kind.name in PACKAGES and first.sink.holder() is None, skips.NO_DRIVER_IN_PACKAGE, *case)
    assert first.journal.generation == second.journal.generation
    for driver in (first, second):
        driver.start_sink()
    sent = frame(output.spark, batch(1))
    stopped: list[BaseException] = []
    # The copies plan other batches: what the first one reads in batch 1, the second one reads in batch 2.
    for driver, batches in ((first, {1: sent}), (second, {1: frame(output.spark, [[], []]), 2: sent})):
        try:
            for number, rows in batches.items():
                driver.deliver(number, rows)
        except (PipelineError, PySparkException) as error:
            stopped.append(error)
        driver.sink.close()
    assert output.visible() == Counter(flat(batch(0), batch(1)))
    assert len(stopped) == 1
    said = f"{type(stopped[0]).__name__}: {stopped[0]}"
    assert "AnotherDriver" in said or "OlderDriver: batch 1: another driver has written" in said  # Delta shows no names


@one_driver
def test_a_copy_that_starts_second_is_refused_and_the_first_goes_on(
    make: Make, case: tuple[str, Support], tmp_path: Path
) -> None:
    output = make(*case)
    assert output.deliver(0, batch(0))
    second = output.copied(tmp_path / "copy").driver()
    first = output.driver()
    first.start(0)
    skip_if(first.sink.holder() is None, skips.NO_DRIVER, *case)
    first.deliver(1, frame(output.spark, batch(1)))
    with pytest.raises(RefusedStart, match=r"the sink holds batch 1 .* has no batch after 0"):
        second.follow(0)
    with pytest.raises(RefusedStart, match="is a copy, or an older state"):
        second.follow(1)  # it has planned a batch 1 of its own
    first.deliver(2, frame(output.spark, batch(2)))
    late = output.copied(tmp_path / "late").driver()
    late.follow(2)
    assert late.journal.generation > first.journal.generation
    for driver in (first, second, late):
        driver.sink.close()
    assert output.visible() == Counter(flat(batch(0), batch(1), batch(2)))
