"""Describes the newest fault of a running cell, and whether the pipeline is up again.

It reads the failpoints' hits, the supervisor's timeline (random kills and unrequested deaths) and the pipeline's
progress. Promise: each call reads only the lines written since the last call, so calling it often is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncebench.delivery.failpoints import KILL, stops_attempt
from oncebench.record import events
from oncebench.record.json_lines import Tail
from oncebench.record.schema import RUNNING

_DEATHS = (events.PIPELINE_KILLED, events.RANDOM_KILL, events.PIPELINE_FAILED, events.ZOMBIE_LEFT)


class NewestFault:
    """Follows the faults of the run in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._hits = Tail(folder / "hits.jsonl")
        self._timeline = Tail(folder / "timeline.jsonl")
        self._progress = Tail(folder / "progress.jsonl")
        self._newest: Mapping[str, Any] = {}
        self._down_us = self._stopped_us = self._running_us = self._continued_us = 0

    def describe(self) -> str:
        """Returns for example `after-prepare:kill in batch 6, restarting`; empty without a fault."""
        for line in self._progress.fresh():
            if line["kind"] == RUNNING:
                self._running_us = max(self._running_us, line["t_us"])
        for hit in self._hits.fresh():
            self._add(hit)
            if hit["action"] == KILL and stops_attempt(hit):
                self._down_us = max(self._down_us, hit["t_us"])
            elif hit["action"] != KILL:
                self._stopped_us = max(self._stopped_us, hit["t_us"])
        for line in self._timeline.fresh():
            if line["event"] in _DEATHS:
                self._down_us = max(self._down_us, line["t_us"])
            if line["event"] in (events.RANDOM_KILL, events.PIPELINE_FAILED):
                self._add(line)
            elif line["event"] == events.PIPELINE_CONTINUED:
                self._continued_us = line["t_us"]
        if not self._newest:
            return ""
        if self._down_us > self._running_us:
            return f"{_name(self._newest)}, restarting"
        stopped = self._stopped_us > max(self._continued_us, self._down_us)
        return f"{_name(self._newest)}{', stopped' if stopped else ''}"

    def _add(self, line: Mapping[str, Any]) -> None:
        if line["t_us"] >= self._newest.get("t_us", 0):
            self._newest = line


def _name(line: Mapping[str, Any]) -> str:
    if line.get("event") == events.PIPELINE_FAILED:
        code = line["exit_code"] or 0
        return f"died ({f'signal {-code}' if code < 0 else f'exit code {code}'})"
    if line.get("event") == events.RANDOM_KILL:
        landed = line["landed"]
        return "random kill" if landed is None else f"random kill past {landed['point']} in batch {landed['batch']}"
    return f"{line['fault']} in batch {line['batch']}"
