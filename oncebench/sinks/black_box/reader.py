"""The committed reader of a black box: the rows of the user's reader, with positions.

Promise: a row has the same position in every read: a hash of its content and of the number of earlier copies of it.
So the audit counts each copy, and finds a row that was visible and is gone later.

Failures: during a run the user's reader may raise, for example because the table does not exist yet. The next poll
calls it again. At the end of the run, a reader that still raises after AGAIN_S ends the run with `Unreadable`. A
function without an answer in time may have no mistake, because the machine may be busy (`TooSlow`).
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import orjson

from oncebench.delivery.errors import PipelineError, ReadError
from oncebench.sinks.black_box.names import UserMistake
from oncebench.sinks.reader import (
    NOTHING,
    OFFSET_BITS,
    NotAnsweredError,
    ReadReport,
    Rows,
    Snapshots,
    now_us,
    rows_of,
)

# Seconds that one call of a user's function may take, unless the target names others. A reader that starts Spark takes
# 10 s on two idle cores.
LIMIT_S = 120.0
# During a run the machine is for the pipeline: the user's reader works for at most this share of the time, and pauses
# for at least so many seconds after each call.
SHARE, PAUSE_S = 0.1, 0.25
# Seconds for which the final read repeats a reader that raises: a server may be busy with the end of the run.
AGAIN_S = 10.0
# Seconds for a child whose pipe is closed to end: the kernel writes the memory of a crash to disk first.
ENDS_S = 10.0
# Seconds between two checks that the child still runs, while it gives no answer.
LOOK_S = 0.2
# Bytes of an answer that are read at once. A pipe holds 64 KiB.
READ_BYTES = 65536
_HOME = Path(__file__).resolve().parents[3]


class LateError(NotAnsweredError):
    """A user's function gave no answer in time."""


class TooSlow(PipelineError):
    """A user's function gave no answer in time: it waits for something, or the machine is busy."""


def failure(
    what: str, error: NotAnsweredError, remedy: str, mistake: type[PipelineError] = UserMistake
) -> PipelineError:
    """Returns the error of a failed function: a `mistake`, unless it may only have lacked time.

    Args:
        what: the function, and what failed.
        remedy: what the user can do about a mistake, as a sentence without its full stop.
    """
    if isinstance(error, LateError):
        return TooSlow(
            f"{what}: {error}. The machine may be busy: run the command again when it is not, or with a longer "
            f"--start-timeout. If the machine is idle: {remedy[0].lower()}{remedy[1:]}."
        )
    return mistake(f"{what}: {error}. {remedy}.")


class Functions:
    """Calls the user's reader and setup in a child process, which starts at the first call.

    Args:
        target: the user's functions, see `oncebench.sinks.black_box.target`.
    """

    def __init__(self, target: Mapping[str, Any]) -> None:
        self._target = target
        self.limit_s = float(target.get("limit_s", LIMIT_S))
        self._child: subprocess.Popen[bytes] | None = None

    def call(self, command: str) -> list[list[Any]]:
        """Executes a command in the child; returns the rows of its answer.

        Args:
            command: check with a role, setup or read, see `oncebench.sinks.black_box.serve`.

        Raises:
            UserMistake: a function cannot be used.
            NotAnsweredError: a function raised, ended its process, or took too long (LateError).
        """
        child = self._running()
        assert child.stdin is not None, "the child has pipes"
        late, line = False, b""
        try:
            child.stdin.write(f"{command}\n".encode())
            child.stdin.flush()
            line = _line_of(child, self.limit_s)
        except TimeoutError:
            late = True
        except OSError:
            pass
        if not line:
            how = None if late else _how_ended(child)
            self.close()
            if how is None:
                raise LateError(f"its process gave no answer within {self.limit_s:g} s")
            raise NotAnsweredError(how)
        answer = orjson.loads(line)
        if "mistake" in answer:
            raise UserMistake(answer["mistake"])
        if "error" in answer:
            raise NotAnsweredError(answer["error"])
        found: list[list[Any]] = answer["rows"]
        return found

    def check(self) -> None:
        """Checks the names of the user's files, and that each function can be loaded and called.

        Raises:
            UserMistake: a function cannot be used.
            TooSlow: a function was not loaded in time.
        """
        for role in ("names", "write", "read", "setup"):
            try:
                self.call(f"check {role}")
            except NotAnsweredError as error:
                name = self._target.get(role, "the process of your functions")
                remedy = "Import its module in a Python shell to find the cause"
                raise failure(f"{name} did not load", error, remedy) from None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or not _alive(self._child):
            self.close()
            log = Path(self._target["folder"]).parent / "logs" / "reader.log"
            log.parent.mkdir(exist_ok=True)
            paths = os.pathsep.join(filter(None, (str(_HOME), os.environ.get("PYTHONPATH"))))
            with log.open("ab") as errors:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", f"{__package__}.serve", orjson.dumps(dict(self._target)).decode()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=_HOME,
                    env={**os.environ, "PYTHONPATH": paths},
                    # A group, with the processes that the functions start. The session stays that of the run, which
                    # ends with all of its processes.
                    process_group=0,
                )
        return self._child

    def close(self) -> None:
        """Ends the child and the processes that the functions have started.

        These processes hold the pipes, too.
        """
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # before the child is reaped: until then nobody else has its number
        child.wait()
        for pipe in filter(None, (child.stdin, child.stdout)):
            with suppress(OSError):  # a command that nobody has read
                pipe.close()


def _line_of(child: subprocess.Popen[bytes], limit_s: float) -> bytes:
    """Returns a line of the child's answers; empty if the child has ended.

    Another process may hold the pipe, so the end of the child shows in its process and not in the pipe.

    Raises:
        TimeoutError: there was no whole line within `limit_s`.
    """
    assert child.stdout is not None, "the child has pipes"
    end, line = time.monotonic() + limit_s, bytearray()
    while not line.endswith(b"\n"):
        ended = not _alive(child)
        if select.select([child.stdout], [], [], 0.0 if ended else min(LOOK_S, limit_s))[0]:
            found = os.read(child.stdout.fileno(), READ_BYTES)
            if not found:
                return b""
            line += found
        elif ended:
            return b""
        elif time.monotonic() >= end:
            raise TimeoutError
    return bytes(line)


def _alive(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child runs. The check does not reap it."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _how_ended(child: subprocess.Popen[bytes]) -> str:
    """Returns how the child ended, whose pipe is closed. Does not reap it."""
    end = time.monotonic() + ENDS_S
    while _alive(child):
        if time.monotonic() >= end:
            return "it closed all files of its process"
        time.sleep(0.01)
    found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    assert found is not None, "it has ended"
    if found.si_code == os.CLD_EXITED:
        return f"its process ended with exit code {found.si_status}"
    return f"{signal.Signals(found.si_status).name} ended its process"


class Unreadable(ReadError):
    """The user's reader does not return the rows at the end of a run."""

    exit_code: ClassVar[int] = 2


class BlackBoxReader(Snapshots):
    """Polls the user's reader, which returns all rows at each call.

    The user's reader works for at most SHARE of the time.
    """

    def __init__(self, target: Mapping[str, Any]) -> None:
        self._functions = Functions(target)
        self._name = str(target["read"])
        self._due = 0.0
        self._final = False
        read = new_rows(target, lambda: self._functions.call("read"), lambda: self._final)
        super().__init__(read, close=self._functions.close)

    def poll(self, timeout_s: float) -> Rows:
        """See `Reader.poll`. A timeout of 0 reads at once; other polls keep to SHARE."""
        if timeout_s > 0 and time.monotonic() + timeout_s < self._due:
            time.sleep(timeout_s)
            return NOTHING
        if timeout_s > 0:
            time.sleep(max(0.0, self._due - time.monotonic()))
        started = time.monotonic()
        rows = super().poll(0)
        ended = time.monotonic()
        self._due = ended + max(PAUSE_S, (ended - started) / SHARE)
        return rows

    def read_to_end(self, take: Callable[[Rows], Any], *, settle_s: float = 0.0, idle_s: float = 0.0) -> ReadReport:
        """See `Reader.read_to_end`: one call of the user's reader returns all rows."""
        del settle_s, idle_s
        self._final = True
        end = time.monotonic() + AGAIN_S
        while True:
            try:
                rows = self._poll_once()
            except NotAnsweredError as error:
                if time.monotonic() < end:
                    time.sleep(1.0)
                    continue
                what = f"{self._name} did not return the rows at the end of the run"
                remedy = "Correct the function: it must return every row that a reader of the sink sees"
                raise failure(what, error, remedy, Unreadable) from None
            if len(rows):
                take(rows)
            return ReadReport({}, 0.0, complete=True, log=False)


def new_rows(
    target: Mapping[str, Any], read: Callable[[], list[list[Any]]], final: Callable[[], bool]
) -> Callable[[], Rows]:
    """Returns a function that reads all rows, and returns only the new ones.

    A row is new if no earlier call of the function has returned it.

    A further copy of a row counts only if the next call has it, too. A user's reader may take several pages while rows
    are written, and then one call may return a row twice. A copy that stays is in the final read in any case.

    Args:
        target: has the names of the columns, and of the key.
        read: returns all rows, each as a list of its values.
        final: whether nothing is written any more, so that each copy counts at once.
    """
    columns: list[str] = target["columns"]
    known: set[tuple[bytes, int]] = set()
    before: set[tuple[bytes, int]] = set()

    def fresh() -> Rows:
        nonlocal before
        found, seen_us = read(), now_us()
        copies: Counter[bytes] = Counter()
        further, places, rows = set(), [], []
        for values in found:
            content = orjson.dumps(values)
            copies[content] += 1
            copy = (content, copies[content])
            if copies[content] > 1:
                further.add(copy)
            if copy not in known and (copies[content] == 1 or copy in before or final()):
                known.add(copy)
                places.append(_place(*copy))
                rows.append(dict(zip(columns, values, strict=True)))
        before = further
        if not rows:
            return NOTHING
        return rows_of(places, [seen_us // 1000] * len(rows), rows, target["key"], seen_us)

    return fresh


def _place(content: bytes, copy: int) -> tuple[int, int]:
    """Returns (partition, offset) of a row: 63 bits of a hash, so no two rows share a place."""
    hashed = int.from_bytes(hashlib.sha256(content + copy.to_bytes(8, "big")).digest()[:8], "big") >> 1
    return hashed >> OFFSET_BITS, hashed & ((1 << OFFSET_BITS) - 1)
