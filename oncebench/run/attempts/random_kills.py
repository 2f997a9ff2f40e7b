"""Kills the pipeline at random times; after an outage it is started again.

Promise: a kill comes while the pipeline has work, as far as `WorkLeft` can estimate that. The times depend on the seed,
on the length of the starts and, where the work would end first, on that estimate. A kill that comes without work is
recorded as `idle`; such kills come at once (`hasten`). An attempt that dies by itself uses up no kill. Under
exactly-once, a kill before an outage comes while the pipeline commits a transaction, or COME_LIMIT_S later
(`commit_held`).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from oncebench.faults.link import commit_held
from oncebench.run.attempts.attempt import Attempt
from oncebench.run.attempts.work_left import BACKLOG_S
from oncebench.sinks.reader import now_us
from pipeline.config import PipelineConfig

if TYPE_CHECKING:  # it imports Spark
    from oncebench.servers.spark_cluster import SparkCluster

# Mean time from "running" to a random kill, at least. The first batch of a restarted pipeline, the replay, takes 3 to
# 5 s. So about half of the kills hit a replay, the others any step of the batches after it, and the run makes progress.
RANDOM_KILL_MEAN_S = 6.0


class Work(Protocol):
    """See `work_left.WorkLeft`."""

    def seconds(self, standstill_s: float = 0.0) -> float:
        """Returns for how many seconds the pipeline has work."""


class RandomKills:
    """The random kills of one run.

    Args:
        count: number of SIGKILLs.
        seed: of their times.
        outage_s: seconds between a kill and the restart; see `Cell.outage_s`.

    Attributes:
        left: the number of kills still to come.
    """

    def __init__(self, count: int, seed: int, outage_s: float = 0.0) -> None:
        self.left = count
        self._outage_s = outage_s
        self._random = random.Random(seed)
        self._work: Work | None = None
        self._nothing_left = False
        self._kill_at: float | None = None
        self._restart_at: float | None = None

    def begin(self, work: Work) -> None:
        """Allows kills from now on."""
        self._work = work

    def hasten(self) -> None:
        """Makes the next kill due at once: a kill that waits has nothing left to hit.

        Its mean wait is as long as a start, so on a busy machine the kills of an idle pipeline would take minutes each.
        """
        if self.left:
            self._kill_at, self._nothing_left = time.monotonic(), True

    def due(self, attempt: Attempt) -> bool:
        """Whether to kill this attempt now. The time of a kill is drawn once the attempt runs."""
        if self._work is None or not self.left:
            return False
        now = time.monotonic()
        if self._kill_at is None:
            if attempt.running:
                # The load continues during the restarts after this kill and after all but the last of the others.
                left_s = self._work.seconds(standstill_s=(self.left - 1) * (attempt.age_s + self._outage_s))
                self._kill_at = now + self._drawn_s(attempt.age_s, left_s)
            return False
        if now < self._kill_at:
            return False
        self._kill_at = None
        return True

    def _drawn_s(self, start_s: float, left_s: float) -> float:
        """Draws how long the next kill waits: less than `left_s`, exponentially distributed below.

        Args:
            start_s: how long the attempt took to start.
            left_s: for how long the pipeline has work; the kills that are left share that time.
        """
        # A start takes about 6 s. Where it takes longer, the replay does too. A share shorter than the work after a
        # restart would only move the kills to the beginning of a batch.
        mean_s = min(max(RANDOM_KILL_MEAN_S, start_s), max(left_s / self.left, min(BACKLOG_S, left_s)))
        if not mean_s:
            return 0.0
        return -mean_s * math.log1p(self._random.random() * math.expm1(-left_s / mean_s))

    def kill(
        self,
        attempt: Attempt,
        config: PipelineConfig,
        servers: Mapping[str, Any],
        cluster: SparkCluster | None,
        interrupted: Callable[[], bool],
    ) -> dict[str, Any] | None:
        """Kills the attempt, and begins the outage if there is one.

        Args:
            config: of the pipeline.
            servers: the servers that the suite started, by name.
            cluster: the Spark cluster that the run has started for the pipeline, if any.
            interrupted: whether the run was interrupted; ends the wait for a commit.

        Returns:
            The fields of the line `random-kill`. None without a kill: the run was interrupted, or the attempt died by
            itself, during the wait for a commit.
        """
        assert self._work is not None, "begin() comes first"

        def given_up() -> bool:
            return interrupted() or not attempt.child.alive

        with commit_held(servers, config, self._outage_s, given_up) as held:
            if held is None:
                return None
            self.left -= 1
            idle = {"idle": True} if self._nothing_left or not self._work.seconds() else {}
            self._nothing_left = False
            killed_us = now_us()
            attempt.child.kill_session()
            if self._outage_s and cluster is not None:  # a living executor would send the commit again
                cluster.kill_executors()
        if self._outage_s:
            self._restart_at = time.monotonic() + self._outage_s
        return {"t_us": killed_us, "landed": attempt.last_failpoint(), **held, **idle}

    @property
    def outage(self) -> bool:
        """Whether a killed attempt waits for its restart."""
        return self._restart_at is not None

    def outage_ends(self) -> bool:
        """Ends the outage when its time is over; returns whether it has ended."""
        if self._restart_at is None or time.monotonic() < self._restart_at:
            return False
        self._restart_at = None
        return True
