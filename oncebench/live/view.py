"""What a run shows while it works: a live table on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from oncebench.live.history import History
from oncebench.live.status import Seen

# A terminal is redrawn this often; more would only flicker.
REDRAWS_PER_S = 4
# Without a terminal, a line this often while phase and fault stay the same: a log stays readable.
LINE_EVERY_S = 5.0


class View(Protocol):
    """Shows what is seen; entered for one cell."""

    def __call__(self, seen: Seen) -> None:
        """Takes the newest state."""

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def view(title: str) -> View:
    """The view that fits stderr."""
    return _Table(title) if sys.stderr.isatty() else _Lines(title)


def fields(seen: Seen, history: History) -> list[tuple[str, str]]:
    """(name, text) of what is worth watching, in the order in which it is read."""
    load = seen.load.get("summary", seen.load)
    visible = seen.observer.get("visible", 0)
    p99 = seen.observer.get("p99_ms")
    batch = seen.batch.get("batch")
    left = "" if history.left_s is None else f", {history.left_s:.0f} s left"
    again = "" if history.recovered_s is None else f", rows again after {history.recovered_s:.1f} s"
    return [
        ("phase", f"{seen.phase}{left}"),
        ("sent", f"{load.get('sent', 0):,}"),
        ("events/s", f"{history.sent_per_s:,.0f}"),
        ("visible", f"{visible:,}"),
        ("rows/s", f"{history.rows_per_s:,.0f}"),
        ("lag", "-" if seen.lag is None else f"{seen.lag:,}"),
        ("p99", "-" if p99 is None else f"{p99:,.0f} ms"),
        ("batch", "-" if batch is None else str(batch)),
        ("fault", f"{seen.fault}{again}" if seen.fault else "-"),
    ]


class _Table:
    def __init__(self, title: str) -> None:
        self._title = title
        self._live = Live(console=Console(stderr=True), refresh_per_second=REDRAWS_PER_S, transient=True)
        self._drawn = 0.0
        self._history = History()

    def __call__(self, seen: Seen) -> None:
        self._history.add(seen)
        now = time.monotonic()
        if now - self._drawn < 1 / REDRAWS_PER_S:
            return
        self._drawn = now
        table = Table(title=self._title, title_justify="left", expand=False)
        words = [*fields(seen, self._history), ("p99 of the last 12 s", self._history.sparkline)]
        for name, _ in words:
            table.add_column(name, justify="right")
        table.add_row(*(text for _, text in words))
        self._live.update(table)

    def __enter__(self) -> _Table:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)


class _Lines:
    def __init__(self, title: str) -> None:
        self._title = title
        self._told = ("", "")
        self._said = 0.0
        self._history = History()

    def __call__(self, seen: Seen) -> None:
        self._history.add(seen)
        now = time.monotonic()
        if (seen.phase, seen.fault) == self._told and now - self._said < LINE_EVERY_S:
            return
        self._told, self._said = (seen.phase, seen.fault), now
        words = "  ".join(f"{name} {text}" for name, text in fields(seen, self._history))
        print(f"{time.strftime('%H:%M:%S')}  {self._title}  {words}", file=sys.stderr, flush=True)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
