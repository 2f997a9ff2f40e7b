"""A job killed with SIGKILL at every failpoint, into every sink.

It runs the real protocol, without Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.failpoints import POINTS
from oncebench.kafka_access.access import KafkaAccess
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.postgres import PostgresServer
from oncebench.sinks.files.folder import PENDING
from oncebench.sinks.postgres.connection import VARIABLE
from oncebench.sinks.reader import Rows
from oncebench.sinks.registry import PACKAGES, SINKS, suite_sinks
from oncebench.sinks.suite import Place
from tests import ROOT
from tests.contract.skips import UNREACHED, UNREACHED_OF
from tests.small_job import COMMAND, PARTITIONS, SCHEMA, SmallJob, values_of

pytestmark = pytest.mark.integration

DIED = -signal.SIGKILL
# `after-commit-log` belongs to Spark and comes after the protocol.
STEPS = [point for point in POINTS if point != "after-commit-log"]
WIDTH = 10_000  # half a partition is then more than a file object keeps in memory (8 KiB)

# Spark writes the others. A package tests its own sinks.
CASES = [
    (kind.name, support)
    for kind in SINKS.values()
    for support in kind.supports
    if kind.name not in PACKAGES
    and not (kind.batch_atomic or kind.certify_only or kind.protocols)
    and support.variant != "native"
]


def called(case: tuple[str, Support]) -> tuple[str, str, str]:
    return case[0], case[1].guarantee, case[1].variant


EXACT = [each for each in CASES if each[1].guarantee == EXACTLY_ONCE]
FILES = next(each for each in EXACT if each[0] == "files-jsonl")
KAFKA = next(each for each in EXACT if called(each) == ("kafka", EXACTLY_ONCE, "two-phase"))
BROKEN = ("broken-files", SINKS["broken-files"].supports[0])


def marked(cases: Sequence[tuple[str, Support]]) -> pytest.MarkDecorator:
    # `test_guarantees` kills Spark jobs that write to Kafka.
    marks = {"kafka": pytest.mark.slow}
    chosen = [pytest.param(each, marks=marks.get(each[0], ()), id="-".join(called(each))) for each in cases]
    return pytest.mark.parametrize("case", chosen)


Starter = subprocess.Popen[str]


@pytest.fixture(scope="module")
def starter(server: PostgresServer) -> Iterator[Starter]:
    """A process that starts jobs.

    Each job is then killed after some hundredths of a second, and not after its imports.
    """
    environment, pipe = {**os.environ, VARIABLE: server.dsn}, subprocess.PIPE
    with subprocess.Popen(COMMAND, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield process


@dataclass(frozen=True)
class Output:
    """An output of a job, and its committed reader."""

    starter: Starter
    job: SmallJob
    target: dict[str, Any]

    def runs(self, *deaths: str) -> list[int]:
        """Starts the job once per failpoint ("": it lives), and returns the exit codes."""
        stdin, stdout = self.starter.stdin, self.starter.stdout
        assert stdin is not None and stdout is not None
        print(json.dumps([asdict(replace(self.job, die_at=point)) for point in deaths]), file=stdin, flush=True)
        codes: list[int] = json.loads(stdout.readline())
        assert set(codes) <= {0, DIED}
        return codes

    def visible(self) -> Counter[str]:
        """How often a committed reader sees each row, by its value."""
        found: Counter[str] = Counter()

        def take(rows: Rows) -> None:
            for value in rows.value:
                row = json.loads(value or b"{}") if self.job.sink != "kafka" else {"value": (value or b"").decode()}
                found[row.get("value", str(row))] += 1

        with closing(suite_sinks()[self.job.sink].read(self.target)) as reader:
            report = reader.read_to_end(take, settle_s=30.0, idle_s=30.0)
            assert report.complete, report.note
            assert reader.leftovers() == []
        return found


Make = Callable[[str, Support], Output]


@pytest.fixture
def make(
    request: pytest.FixtureRequest, starter: Starter, server: PostgresServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Make:  # fmt: skip
    monkeypatch.setenv(VARIABLE, server.dsn)

    def made(sink: str, support: Support) -> Output:
        name, kafka = f"k{uuid.uuid4().hex[:10]}", KafkaAccess("")
        if sink == "kafka":
            broker: KafkaBroker = request.getfixturevalue("kafka")
            broker.create_topic(f"{name}.out", PARTITIONS)
            kafka = broker.access
        target = suite_sinks()[sink].provide(Place(name, tmp_path, PARTITIONS, kafka, str, SCHEMA, "key"))
        job = SmallJob(
            sink, name, target["output"], str(tmp_path / "checkpoint"), support.guarantee, support.variant,
            kafka.client if sink == "kafka" else {}, width=WIDTH,
        )  # fmt: skip
        return Output(starter, job, target)

    return made


def broken(guarantee: str, visible: Counter[str], batches: int) -> str:
    """How the visible rows of so many finished batches break a guarantee; empty if they do not."""
    sent = {value for batch in range(batches) for p in range(PARTITIONS) for value in values_of(batch, p)}
    wrong = {
        "unknown": visible.keys() - sent,
        "lost": set() if guarantee == AT_MOST_ONCE else sent - visible.keys(),
        "duplicated": set() if guarantee == AT_LEAST_ONCE else {value for value in sent if visible[value] > 1},
    }
    return ", ".join(f"{what}: {sorted(values)[:3]}" for what, values in wrong.items() if values)


def suffer_every_death(output: Output) -> None:
    """Kills a batch at each failpoint, replays it, and checks the guarantee."""
    codes = output.runs(*(start for point in STEPS for start in (point, "")), "")
    assert [point for point, code in zip(STEPS, codes[::2], strict=False) if code != DIED] == []
    assert codes[1::2] + codes[-1:] == [0] * (len(STEPS) + 1)
    visible, guarantee = output.visible(), output.job.guarantee
    assert broken(guarantee, visible, len(STEPS) + 1) == ""
    of_all = len(values_of(0, 0)) * PARTITIONS * (len(STEPS) + 1)
    assert guarantee != AT_MOST_ONCE or visible.total() < of_all, "a death after the claim must lose rows"
    assert guarantee != AT_LEAST_ONCE or visible.total() > of_all, "a death after the write must duplicate rows"


@marked(CASES)
def test_a_kill_at_any_failpoint_breaks_no_guarantee(make: Make, case: tuple[str, Support]) -> None:
    suffer_every_death(make(*case))


def test_a_kill_breaks_no_guarantee_where_tasks_share_a_transaction(make: Make) -> None:
    output = make(*KAFKA)
    suffer_every_death(replace(output, job=replace(output.job, workers=1)))


def test_a_broken_sink_fails_the_same_check(make: Make) -> None:
    with pytest.raises(AssertionError, match="duplicated"):
        suffer_every_death(make(*BROKEN))


def test_a_half_written_file_stays_hidden_until_a_start_removes_it(make: Make) -> None:
    output = make(*FILES)
    assert output.runs("", "mid-write") == [0, DIED]
    begun, whole = sorted(path.stat().st_size for path in (Path(output.job.output) / PENDING).iterdir())
    assert 0 < begun < whole
    assert output.runs("mid-write", "") == [DIED, 0]
    assert broken(EXACTLY_ONCE, output.visible(), 2) == ""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@marked(EXACT)
def test_a_kill_of_a_replay_at_any_failpoint_breaks_no_guarantee(make: Make, case: tuple[str, Support]) -> None:
    output, expected = make(*case), UNREACHED_OF.get("-".join(called(case)), UNREACHED[case[1].variant])
    pairs = [(first, second) for first in STEPS for second in STEPS]
    codes = output.runs(*(start for pair in pairs for start in (*pair, "")), "")
    assert set(codes[::3][:-1]) == {DIED}
    unreached = {pair for pair, code in zip(pairs, codes[1::3], strict=True) if code != DIED}
    assert unreached == {(first, second) for first, seconds in expected.items() for second in seconds}
    assert broken(EXACTLY_ONCE, output.visible(), codes.count(0)) == ""
