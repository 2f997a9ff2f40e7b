"""How long a run waits in each phase, without progress, before it gives up.

Promise: pure functions of the cell. A limit grows with the faults, because a fault may keep a server down for as long
as it names. All limits are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadgen.session import EVENTS_PER_SESSION
from oncebench.delivery.failpoints import parse_fault
from oncebench.run.attempts.supervisor import Supervisor
from oncebench.run.progress import RunProgress
from oncebench.run.progress_timeout import DrainTimeout
from oncebench.scenario.cell import Cell
from oncebench.servers.limits import SERVER_LIMIT_S

# After the load, a run has stalled when no batch was committed, no fault came and no restart gave a sign of life for
# this long. A restart with its replay takes 15 s on two idle cores; under other load 100 s were observed.
STANDSTILL_S = 180.0
# After Ctrl-C: long enough for the current batch, short enough for the user who waits.
INTERRUPTED_DRAIN_S = 8.0
# The broker looks for timed-out transactions every 10 s, and then writes their markers.
ABORT_MARGIN_S = 20.0
# A load without a rate sends at least this fast: a third of the slowest of 30 flat-out runs (Kafka, files, PostgreSQL).
FLAT_OUT_EVENTS_PER_S = 10_000.0
# The batch that reads the open sessions has one event per session. A pipeline slower than this is stuck.
OPEN_SESSIONS_PER_S = 200.0


@dataclass(frozen=True)
class Limits:
    """The limits of one run.

    Attributes:
        cell: of the run.
        start_s: how long a starting pipeline may give no sign of life.
    """

    cell: Cell
    start_s: float

    @property
    def server_s(self) -> float:
        """Until a server answers, and until Kafka acknowledges more of the load."""
        return SERVER_LIMIT_S + self._faults_s

    @property
    def preload_s(self) -> float:
        """Until the pipeline has started and has read the open sessions."""
        return self.start_s + self.cell.open_sessions / OPEN_SESSIONS_PER_S

    @property
    def warm_up_s(self) -> float:
        """Until the pipeline has read a warm-up batch."""
        return self.start_s + self.cell.trigger_ms / 1000

    @property
    def settle_s(self) -> float:
        """Until no transaction of the run is open any more."""
        return self.cell.transaction_timeout_ms / 1000 + ABORT_MARGIN_S

    def drain(self, progress: RunProgress, supervisor: Supervisor) -> DrainTimeout:
        """Returns the timeout of a run whose load is over."""
        limit_s = STANDSTILL_S + self._faults_s + 2 * self._load_s  # a backlog may come as one batch
        return DrainTimeout(limit_s, self.start_s + self._faults_s, progress, supervisor)

    @property
    def _load_s(self) -> float:
        """The duration of the load; at most this long for a load without a rate."""
        if self.cell.rate == "max":
            return self.cell.sessions * EVENTS_PER_SESSION / FLAT_OUT_EVENTS_PER_S
        return self.cell.load_s

    @property
    def _faults_s(self) -> float:
        """The sum of the durations that faults and outages name."""
        return self.cell.random_kills * self.cell.outage_s + sum(
            parse_fault(fault).seconds or 0.0 for fault in self.cell.faults
        )
