"""Disturbs a driver at each of its requests, and judges what follows.

The disturbances are kills, lost answers, late puts and a second driver.

Promise: if the search finds nothing, then no such disturbance breaks the guarantee for a reader, or keeps a successor
from finishing. Each case starts from the same state: batch 0 is done, and batch 1 comes.

* `kills`: the driver is killed at a request. A write may have happened, may never happen, or happens at any later
  request of the successor.
* `lost_answers`: the answer is lost, and the driver lives. It must finish by itself.
* `second_drivers`: a second driver starts in the middle of the first one. It may stop in the middle, too: the first one
  goes on to its end, and then the second one.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

from oncebench.delivery import journal
from oncebench.delivery.contract import AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.delivery.errors import PipelineError
from oncebench.delivery.stores.objects import ObjectStore
from proofs.crash_states.attempts import Pipeline
from proofs.crash_states.disk import Tree
from proofs.crash_states.folder import build, tree_of
from proofs.crash_states.promises import LOSS, ORPH, STUCK, Expected, Wrong, wrong
from proofs.crash_states.recorder import unrecorded
from proofs.crash_states.scenarios import FIRST, LATER
from proofs.object_states.attempts import CHECKPOINT, StoreWorkspace, modelled, using
from proofs.object_states.store import DONE, LATE, NEVER, SPARK, Client, Cut, Killed, Objects
from proofs.object_states.turns import Turns

LAST = 1
MEMORY = Path("/dev/shm")  # noqa: S108  (fsync costs nothing there)


@dataclass(frozen=True)
class Rules:
    """The rules of the store that are broken on purpose.

    See `oncebench.delivery.stores.interface`.
    """

    ignores_condition: bool = False
    list_lags: bool = False
    logs_replace: bool = False


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        cases: number of cases.
        requests: of one undisturbed attempt.
        wrong: number of cases with each anomaly, by code.
        examples: code -> the first case that shows it.
        seconds: processor time.
    """

    cases: int
    requests: int
    wrong: dict[str, int]
    examples: dict[str, str]
    seconds: float


class Bench:
    """One pipeline over the model: its state after batch 0, and attempts on it."""

    def __init__(self, pipeline: Pipeline, rules: Rules, folder: Path) -> None:
        (folder / "record").mkdir()
        self.pipeline = pipeline
        self.workspace = StoreWorkspace(pipeline, folder / "root", folder / "record", rules.logs_replace)
        build(Tree(frozenset(), frozenset()), self.workspace.root)
        self.objects = Objects(ignores_condition=rules.ignores_condition, list_lags=rules.list_lags)
        with using(Client(self.objects)):
            self.workspace.run_attempt(0, FIRST, unrecorded)
        self._base = tree_of(self.workspace.root), copy.deepcopy(self.objects)
        self.requests = self._count()

    def _count(self) -> list[str]:
        self.reset()
        client = Client(self.objects)
        self.attempt(client, FIRST)
        return client.requests

    def reset(self) -> None:
        """Goes back to the state after batch 0."""
        tree, objects = self._base
        build(tree, self.workspace.root)
        self.objects = copy.deepcopy(objects)

    def attempt(self, client: Client, available: int, last: int = LAST) -> None:
        """Runs one driver."""
        with using(client):
            self.workspace.run_attempt(last, available, unrecorded)

    def judged(self) -> Wrong:
        """Returns the anomalies now, and after a successor has run the open batch and one more."""
        found = self._now(_batches(self.objects, "commits"))
        try:
            self.attempt(Client(self.objects), LATER)
            self.attempt(Client(self.objects), LATER, LAST + 1)
            self.attempt(Client(self.objects), LATER, -1)
        except Exception as failure:
            return found | {STUCK: f"{type(failure).__name__}: {failure}"}
        for code, what in self._now(set(range(LAST + 2))).items():
            found.setdefault(code, what)
        leftovers = [path for path in (self.workspace.output / ".pending").glob("*") if path.is_file()]
        if leftovers:
            found[ORPH] = leftovers[0].name
        return found

    def _now(self, done: set[int]) -> Wrong:
        rows = {n: int(self.objects.content[f"{CHECKPOINT.prefix}/offsets/{n}"]) for n in self._planned()}
        decided = _batches(self.objects, "journal", "decision-") | _batches(self.objects, "commits")
        guarantee = self.pipeline.support.guarantee
        found = wrong(guarantee, self.workspace.visible(), Expected(rows, decided, done & set(rows)))
        if guarantee == AT_MOST_ONCE and LAST + 1 in done:
            last = Expected({LAST + 1: rows[LAST + 1]}, done, done)
            if LOSS in wrong(EXACTLY_ONCE, self.workspace.visible(), last):
                found[LOSS] = f"batch {LAST + 1}, which had no fault"
        return found

    def _planned(self) -> set[int]:
        return _batches(self.objects, "offsets")


def _batches(objects: Objects, log: str, kind: str = "") -> set[int]:
    begin = f"{CHECKPOINT.prefix}/{log}/{kind}"
    names = (name.removeprefix(begin) for name in objects.content if name.startswith(begin))
    return {int(name.partition(".")[0]) for name in names}


Case = tuple[str, Callable[[Bench], Wrong]]
Scenario = Callable[[Bench], Iterator[Case]]


def kills(bench: Bench) -> Iterator[Case]:
    """See the module."""
    for number, request in enumerate(bench.requests):
        write = request.removeprefix(SPARK) in ("put", "delete")
        outcomes = (NEVER, DONE) if write else (NEVER,)
        for outcome in outcomes:
            yield f"killed at request {number} ({request}), {outcome}", partial(_killed, cut=Cut(number, outcome))
        if request.removeprefix(SPARK) == "put":
            for late in range(len(bench.requests) + 1):
                cut = Cut(number, LATE, late)
                yield (
                    f"killed at request {number} (put), which happens {late} requests later",
                    partial(_killed, cut=cut),
                )


def _killed(bench: Bench, cut: Cut) -> Wrong:
    try:
        bench.attempt(Client(bench.objects, cut=cut), FIRST)
    except Killed:
        return _after_a_kill(bench)
    return {STUCK: "it was not killed"}


def _after_a_kill(bench: Bench) -> Wrong:
    """Judges after a kill.

    A successor that meets a late put stops as for another driver. The next successor finishes.
    """
    if bench.objects.pending:
        with suppress(PipelineError):
            bench.attempt(Client(bench.objects), LATER)
        while bench.objects.pending:
            bench.objects.arrive()
    return bench.judged()


def lost_answers(bench: Bench) -> Iterator[Case]:
    """See the module."""
    for number, request in enumerate(bench.requests):
        if request.startswith(SPARK):  # S3A tries again for minutes
            continue
        for outcome in (NEVER, DONE) if request in ("put", "delete") else (NEVER,):
            cut = Cut(number, outcome, kill=False)
            yield f"the answer of request {number} ({request}) is lost, {outcome}", partial(_undisturbed, cut=cut)


def _undisturbed(bench: Bench, cut: Cut) -> Wrong:
    try:
        bench.attempt(Client(bench.objects, cut=cut), FIRST)
    except PipelineError as failure:
        return {STUCK: f"{type(failure).__name__}: {failure}"}
    return bench.judged()


def second_drivers(bench: Bench) -> Iterator[Case]:
    """See the module."""
    whole = len(bench.requests)
    for first in range(whole):
        for second in range(1, whole + 8):  # the second one has more to do: it finds an open batch
            what = f"a second driver starts before request {first}, and rests after {second} of its own"
            yield what, partial(_interrupted, first=first, second=second)


def _interrupted(bench: Bench, first: int, second: int) -> Wrong:
    turns = Turns([("A", first), ("B", second), ("A", None), ("B", None)])

    def driver(name: str, available: int) -> None:
        bench.attempt(Client(bench.objects, partial(turns.before_request, name)), available)

    ends = turns.run({"A": partial(driver, "A", FIRST), "B": partial(driver, "B", LATER)})
    for name, end in ends.items():
        if end is not None and not isinstance(end, PipelineError):
            return {STUCK: f"{name}: {type(end).__name__}: {end}"}
    return bench.judged()


def search(
    pipeline: Pipeline, scenario: Scenario, rules: Rules | None = None, every: int = 1, until: Collection[str] = ()
) -> Found:
    """Judges every case, or one of `every`; stops when all anomalies of `until` have occurred."""
    started, judged = time.process_time(), 0
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    with _bench(pipeline, rules or Rules()) as bench:
        cases = list(scenario(bench))[:: max(1, every)]
        for name, run in cases:
            bench.reset()
            for code, what in run(bench).items():
                counts[code] += 1
                examples.setdefault(code, f"{name}: {what}")
            judged += 1
            if until and set(until) <= set(counts):
                break
        requests = len(bench.requests)
    return Found(judged, requests, dict(sorted(counts.items())), examples, time.process_time() - started)


@contextmanager
def _bench(pipeline: Pipeline, rules: Rules) -> Iterator[Bench]:
    memory = MEMORY if MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="object-states-", dir=memory) as folder,
        mock.patch.object(journal, "KEEP_BATCHES", 1),
        mock.patch.object(ObjectStore, "prepare", lambda _: None) if rules.ignores_condition else nullcontext(),
        modelled(),
    ):
        yield Bench(pipeline, rules, Path(folder))
