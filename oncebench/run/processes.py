"""Starts and stops the observer and the load generator of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncebench.home import HOME
from oncebench.processes import child as process
from oncebench.processes.child import Child

OBSERVER, GENERATOR = "observer", "generator"
STOP_LIMIT_S = 15.0


class RunProcesses:
    """The children of a run other than the pipeline; leaving the context kills them.

    Args:
        folder: of the run, for configurations and logs.
        environment: of every child.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self.children: dict[str, Child] = {}

    def start_observer(self, config: Mapping[str, Any]) -> None:
        """Starts the committed reader."""
        self._start(OBSERVER, "oncebench.observe.observer", config)

    def start_generator(self, config: Mapping[str, Any]) -> Child:
        """Starts the load."""
        return self._start(GENERATOR, "loadgen", config)

    @property
    def load_started(self) -> bool:
        """Whether the load generator was started."""
        return GENERATOR in self.children

    def stop(self, name: str) -> None:
        """Stops a child gently, or kills it after STOP_LIMIT_S."""
        self.children[name].stop_gently(STOP_LIMIT_S)

    def _start(self, name: str, module: str, config: Mapping[str, Any]) -> Child:
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(config, indent=1))
        command = [sys.executable, "-m", module, str(path)]
        log = self._folder / "logs" / f"{name}.log"
        self.children[name] = process.start(f"the {name}", command, log, cwd=HOME, env=self._environment)
        return self.children[name]

    def __enter__(self) -> RunProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children.values():
            child.kill_session()


def last_line(log: Path) -> str:
    """Returns the last line of a child's log that is not blank."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    return next(filter(str.strip, reversed(lines)), "it left no message")
