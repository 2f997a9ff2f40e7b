"""Starts and stops the observers and the load generators of a run.

Promise: leaving the context kills them all. A process that ends by itself before its work is done is named (`died`).
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from oncebench.errors import UserError
from oncebench.home import HOME
from oncebench.processes import child as process
from oncebench.processes.child import Child
from oncebench.record import events
from oncebench.record.json_lines import read_lines
from oncebench.record.numbered import numbered

OBSERVER, GENERATOR = "observer", "generator"
STOP_LIMIT_S = 15.0
_log = logging.getLogger(__name__)


class RunProcesses:
    """The children of a run other than the pipeline; leaving the context kills them.

    Args:
        folder: of the run, for configurations and logs.
        environment: of every child.

    Attributes:
        children: by name: `generator`, or `generator 1`, `generator 2`, ... if there are several.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self.children: dict[str, Child] = {}
        self._status: dict[str, Path] = {}
        self._stopped: set[str] = set()  # kinds that were asked to end
        self._reported: set[str] = set()
        self._done: dict[str, bool] = {}  # of each child that has ended, whether its work was done

    def start_observers(self, configs: Sequence[Mapping[str, Any]]) -> None:
        """Starts the committed readers."""
        self._start(OBSERVER, "oncebench.observe.observer", configs)

    def start_generators(self, configs: Sequence[Mapping[str, Any]]) -> None:
        """Starts the load."""
        self._start(GENERATOR, "loadgen", configs)

    @property
    def load_started(self) -> bool:
        """Whether the load generators were started."""
        return bool(self.of(GENERATOR))

    @property
    def load_over(self) -> bool:
        """Whether no generator sends any more, or the run has lost a generator or an observer."""
        return bool(self.died()) or not any(child.alive for child in self.of(GENERATOR))

    def of(self, kind: str) -> list[Child]:
        """Returns the children of a kind, in the order of their numbers."""
        return [child for name, child in self.children.items() if _kind(name) == kind]

    def died(self) -> list[Child]:
        """Returns the children that ended by themselves before their work was done.

        A generator is done when it has written a summary without an error. An observer is not done before it is
        stopped.
        """
        return [child for name, child in self.children.items() if self._died(name, child)]

    def report_deaths(self, note: Callable[..., None]) -> None:
        """Logs each child that has died, once, and notes it in the timeline: the verdict names it."""
        for child in self.died():
            if child.name not in self._reported:
                self._reported.add(child.name)
                why = _why_it_died(child)
                note(events.PROCESS_DIED, name=child.name, why=why)
                _log.warning(
                    "%s died: %s. The run ends early, and is judged as it is. See %s.", child.name, why, child.log
                )

    def nothing_sent(self) -> UserError:
        """Returns the error of a load that did not begin."""
        child = [*self.died(), *self.of(GENERATOR)][0]
        return UserError(f"nothing was sent, because {child.name} ended: {_why_it_died(child)}. See {child.log}")

    def stop(self, kind: str) -> None:
        """Stops the children of a kind gently and together, or kills them after STOP_LIMIT_S.

        After half of that time, a second SIGTERM ends a generator's wait for Kafka's answers.
        """
        self.died()  # what has ended by now was not stopped
        self._stopped.add(kind)
        children = self.of(kind)
        for child in children:
            child.send(signal.SIGTERM)
            child.send(signal.SIGCONT)
        until = time.monotonic() + STOP_LIMIT_S
        for child in children:
            if not child.wait(max(0.0, until - STOP_LIMIT_S / 2 - time.monotonic())):
                child.send(signal.SIGTERM)
        with ExitStack() as kills:
            for child in children:
                child.wait(max(0.0, until - time.monotonic()))
                kills.callback(child.kill_session)

    def _died(self, name: str, child: Child) -> bool:
        kind = _kind(name)
        if name not in self._done:
            if child.alive or kind in self._stopped:
                return False
            lines = read_lines(self._status[name]).items if kind == GENERATOR else ()
            self._done[name] = bool(lines) and "summary" in lines[-1] and not lines[-1]["summary"].get("error")
        return not self._done[name]

    def _start(self, kind: str, module: str, configs: Sequence[Mapping[str, Any]]) -> None:
        several = len(configs)
        stems = numbered(kind, several)
        for number, (stem, config) in enumerate(zip(stems, configs, strict=True), 1):
            path = self._folder / f"{stem}.json"
            path.write_text(json.dumps(config, indent=1))
            command = [sys.executable, "-m", module, str(path)]
            log = self._folder / "logs" / f"{stem}.log"
            name, title = (
                (kind, f"the {kind}") if several == 1 else (f"{kind} {number}", f"{kind} {number} of {several}")
            )
            self._status[name] = Path(config["status_path"])
            self.children[name] = process.start(title, command, log, cwd=HOME, env=self._environment)

    def __enter__(self) -> RunProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as kills:  # a child that cannot be killed spares no other
            for child in self.children.values():
                kills.callback(child.kill_session)


def _why_it_died(child: Child) -> str:
    """Returns why a child died that nobody stopped: the signal, or its log's last line.

    Kills what is left of the child's session.
    """
    child.kill_session()
    code = child.returncode
    return f"killed by signal {-code}" if code is not None and code < 0 else _last_line(child.log).rstrip(".")


def _last_line(log: Path) -> str:
    """Returns the last line of a child's log that is not blank."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    return next(filter(str.strip, reversed(lines)), "it left no message")


def _kind(name: str) -> str:
    return name.partition(" ")[0]
