"""Waits for each phase of a run, and meanwhile supervises the pipeline and displays the run.

Promise: the pipeline is supervised in every wait. An interruption is recorded once; it ends every fault and shortens
every wait. Failure: the suite's Kafka broker died (`UserError`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from oncebench.errors import UserError
from oncebench.live.status import LOADING, STARTING, Phase
from oncebench.record import events
from oncebench.run.attempts.supervisor import Supervisor
from oncebench.run.progress_timeout import ProgressTimeout
from oncebench.servers.kafka.broker import KafkaBroker
from oncebench.servers.kafka.cluster import KafkaCluster

# Interval of looks at the run. Processes report every 250 to 500 ms; a fault needs an answer sooner.
LOOK_S = 0.05
# Interval during the load of a run without faults: no fault needs an answer, and each look takes CPU from the pipeline.
CALM_LOOK_S = 0.2


class Phases:
    """The phases of one run.

    Args:
        supervisor: of the pipeline.
        broker: the Kafka if the suite started it.
        look: called at each look with the current phase; it reads the progress and displays it.
        interrupted: set by the first Ctrl-C.
        faulted: whether the run has faults.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        broker: KafkaBroker | KafkaCluster | None,
        look: Callable[[Phase], None],
        interrupted: threading.Event,
        faulted: bool,
    ) -> None:
        self._supervisor = supervisor
        self._broker = broker
        self._look = look
        self._interrupted = interrupted
        self._faulted = faulted
        self._interruption_noted = False
        self.current = STARTING

    def begin(self, phase: Phase) -> None:
        """Enters a phase and displays it."""
        self.current = phase
        self._look(phase)

    def wait(
        self, phase: Phase, done: Callable[[], bool], timeout: ProgressTimeout, interrupted_s: float = 0.0
    ) -> bool:
        """Waits until `done` or the timeout expires; returns whether it is done.

        Args:
            interrupted_s: seconds for which an interrupted run still waits.
        """
        self.begin(phase)
        while not done():
            if self._interrupted.is_set():
                self._note_interruption()
                timeout.shorten(interrupted_s)
            if timeout.expired():
                return False
            if self._supervisor.child is not None:
                self._supervisor.watch()
            if self._broker is not None and not self._broker.alive and not self._supervisor.fault_active:
                raise UserError(f"the Kafka broker died in the phase '{phase.name}'. See {self._broker.log}")
            self._look(phase)
            time.sleep(CALM_LOOK_S if phase == LOADING and not self._faulted else LOOK_S)
        return True

    def wait_for_servers(self, timeout: ProgressTimeout) -> None:
        """Waits until every server answers, and ends a fault that takes too long.

        Call this before a blocking request: during the request nothing would end the fault that blocks it.
        """
        if not self.wait(self.current, lambda: not self._supervisor.server_down, timeout):
            self._supervisor.end_faults()

    def _note_interruption(self) -> None:
        if not self._interruption_noted:
            self._interruption_noted = True
            self._supervisor.end_faults()  # the final reads would wait for a server that a fault keeps down
            self._supervisor.note(events.INTERRUPTED, phase=self.current.name)
