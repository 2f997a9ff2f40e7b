"""Displays a run in progress on stderr: a table on a terminal, plain lines elsewhere.

Promise: in every phase without figures the view names what the run waits for, and for how long. A figure that does not
exist yet is left out. A pipeline that is behind its load is reported first.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from oncebench.live.history import SPARK_S, SPARKS, History
from oncebench.live.status import LOADING, RunStatus

# Redraws of a terminal per second; more would flicker.
REDRAWS_PER_S = 4
# Without a terminal, one line per 5 s while phase and fault stay the same, so that a log stays readable.
LINE_EVERY_S = 5.0


class View(Protocol):
    """Displays the states of one cell; a context manager."""

    def __call__(self, status: RunStatus) -> None:
        """Displays the newest state."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def view(title: str) -> View:
    """Returns a table if stderr is a terminal, else plain lines."""
    return _TableView(title) if sys.stderr.isatty() else _LineView(title)


def fields(status: RunStatus, history: History) -> list[tuple[str, str]]:
    """Returns the (name, text) of each figure that exists, in reading order."""
    load, visible, p99 = status.load_counts, status.observer.get("visible", 0), status.observer.get("p99_ms")
    found = [("phase", describe_phase(status, history))]
    if load:
        found.append(("sent", f"{load['sent']:,}"))
    if load and status.phase == LOADING:
        found.append(("events/s", f"{history.sent_per_s:,.0f}"))
    if visible:
        found += [("visible", f"{visible:,}"), ("rows/s", f"{history.rows_per_s:,.0f}")]
    if status.lag is not None:
        found.append(("lag", f"{status.lag:,}"))
    if visible:
        found.append(("p99", "-" if p99 is None else f"{p99:,.0f} ms"))
    if status.batch:
        found.append(("batch", str(status.batch["batch"])))
    if status.fault:
        rise = "" if history.rise_s is None else f", visible rose {history.rise_s:.1f} s later"
        found.append(("fault", f"{status.fault}{rise}"))
    return found


def describe_phase(status: RunStatus, history: History) -> str:
    """Returns for example `starting: waiting for the pipeline to start the query, 12 s`."""
    waits_for = status.phase.waits_for
    if status.phase == LOADING and not status.load:
        waits_for = "waiting for the first events"
    elif history.left_s is not None:
        return f"{status.phase.name}, {history.left_s:.0f} s left"
    if not waits_for:
        return status.phase.name
    seconds = round(history.phase_s)
    return f"{status.phase.name}: {waits_for}{f', {seconds} s' if seconds else ''}"


def describe_backlog(history: History) -> str:
    """Returns a warning while the pipeline is behind its load, else an empty text."""
    if history.behind_s is None:
        return ""
    return f"the pipeline is behind its load by {history.behind_s:.0f} s; latencies include the backlog"


class _TableView:
    def __init__(self, title: str) -> None:
        self._title = title
        self._status: RunStatus | None = None
        self._history = History()
        self._lock = threading.Lock()  # a thread of Live redraws, also while the run waits for something
        self._live = Live(
            console=Console(stderr=True),
            get_renderable=self._draw,
            refresh_per_second=REDRAWS_PER_S,
            transient=True,
        )

    def __call__(self, status: RunStatus) -> None:
        with self._lock:
            self._history.add(status)
            self._status = status

    def _draw(self) -> Group:
        with self._lock:
            if self._status is None:
                return Group()
            (_, phase), *columns = fields(self._status, self._history)
            if self._status.observer.get("visible"):
                columns.append((f"p99 of the last {SPARKS * SPARK_S:.0f} s", self._history.sparkline))
            backlog = describe_backlog(self._history)
        lines = [Text(backlog, style="bold")] if backlog else []
        lines.append(Text(f"{self._title}  {phase}"))  # a column would cut the text in a narrow terminal
        if not columns:
            return Group(*lines)
        table = Table(expand=False)
        for name, _ in columns:
            table.add_column(name, justify="right")
        table.add_row(*(text for _, text in columns))
        return Group(*lines, table)

    def __enter__(self) -> _TableView:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)


class _LineView:
    def __init__(self, title: str) -> None:
        self._title = title
        self._printed: tuple[object, ...] = ()
        self._printed_at = 0.0
        self._history = History()

    def __call__(self, status: RunStatus) -> None:
        self._history.add(status)
        now, backlog = time.monotonic(), describe_backlog(self._history)
        state = (status.phase, status.fault, bool(backlog))
        if state == self._printed and now - self._printed_at < LINE_EVERY_S:
            return
        self._printed, self._printed_at = state, now
        figures = [f"{name} {text}" for name, text in fields(status, self._history)]
        parts = [time.strftime("%H:%M:%S"), self._title, *([backlog] if backlog else []), *figures]
        print("  ".join(parts), file=sys.stderr, flush=True)

    def __enter__(self) -> _LineView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
