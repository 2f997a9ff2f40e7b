"""Named places where a run can be killed or stopped; off unless asked for.

Promise: each fault acts once, in the given order. Its hit is on disk (fsynced) before the fault acts, whether the
driver or a worker process reaches the failpoint. A second fault is armed only after the first has acted: in the next
attempt of a killed pipeline, or when a stopped pipeline continues. So `--fault after-prepare --fault after-prepare`
kills a batch and then its replay, and no other task of a dying process can use up the second fault.

`kill` sends SIGKILL to every process of the pipeline's session (driver, JVM, workers). Any other action sends SIGSTOP
to all of them. The suite reads the hit, acts from outside, and then may let the processes continue. After a `zombie`
the stopped driver has a successor, and later faults apply to the successor. The design follows FreeBSD's fail(9) and
fail-rs: named points in the code, actions from outside.

On a Spark cluster that the run has started, a task runs in the session of a Spark worker and not in the driver's. A
fault that a task reaches then kills or stops that session: the Spark worker with its executors, as a machine that
fails. The driver is not killed. Its batch fails, so it ends with an error, and the suite starts the next attempt.

A sink that a user certifies may have points of its own:

    from oncebench import failpoint

    def write_batch(df, batch_id):
        stage(df, batch_id)
        failpoint("staged")
        publish(batch_id)

`failpoint` does nothing outside a run of `oncebench certify`. In a run it can be called in the driver, in a Spark task,
and in any other process that inherits the environment. The driver writes a file before each batch, with the run's
faults and the number of the batch. The environment variable VARIABLE holds the path of that file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

# In the order of a batch. Every guarantee reaches every point, but `mid-commit` of two-phase only in a batch with rows
# in several partitions (if the job has several). Where a protocol lacks a step (a decision under
# at-least-once, for example), the points around it coincide.
POINTS = (
    "batch-start",
    "mid-write",
    "before-prepare",
    "after-prepare",
    "before-decision",
    "after-decision",
    "mid-commit",
    "after-commit",
    "after-commit-log",
)
# The points that a user's sink calls by name begin with this.
OWN = "own-"
_OWN_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
VARIABLE = "ONCEBENCH_FAILPOINTS"
# Batches 0 to 2 are slow because of the start (JIT, first RocksDB files). A recovery is compared with the latencies of
# the batches before the fault.
FIRST_BATCH = 6
KILL, ZOMBIE = "kill", "zombie"
FORM = "POINT[:ACTION[:SECONDS]][@batch=N|@after=N]"
_SPEC = re.compile(
    r"(?P<point>[a-z][a-z0-9-]*)(?::(?P<action>[a-z-]+)(?::(?P<seconds>\d{1,5}(?:\.\d{1,3})?))?)?(?:@(?:batch=(?P<batch>\d+)|after=(?P<after>\d+)))?"
)


@dataclass(frozen=True)
class Fault:
    """One fault: its place, its action and its batch.

    With `batch`, the fault hits in this batch, even without rows. With `after`, it hits in the first batch with rows
    that comes at least this many batches after the batch of the previous fault; the first fault counts from
    FIRST_BATCH. With neither, the first fault hits in the first batch with rows from FIRST_BATCH on. A later fault hits
    in the next batch with rows, which is the replay.
    """

    point: str
    action: str = KILL
    seconds: float | None = None
    batch: int | None = None
    after: int | None = None

    def __str__(self) -> str:
        action = self.action if self.seconds is None else f"{self.action}:{_plain(self.seconds)}"
        when = f"@batch={self.batch}" if self.batch is not None else f"@after={self.after}" if self.after else ""
        return f"{self.point}:{action}{when}"


def parse_fault(text: str) -> Fault:
    """Reads `POINT[:ACTION[:SECONDS]][@batch=N|@after=N]`; does not check the fault's name.

    Raises:
        ValueError: names the mistake and the allowed values.
    """
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ValueError(f"fault {text!r} is not of the form {FORM}")
    if match["point"] not in POINTS and not match["point"].startswith(OWN):
        near = get_close_matches(match["point"], POINTS, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(
            f"unknown failpoint {match['point']!r}{meant}; the failpoints are: {', '.join(POINTS)}. "
            f"A fault is {FORM}, such as after-commit:{KILL}"
        )
    seconds = None if match["seconds"] is None else float(match["seconds"])
    batch, after = (None if match[name] is None else int(match[name]) for name in ("batch", "after"))
    return Fault(match["point"], match["action"] or KILL, seconds, batch, after)


@dataclass(frozen=True)
class Failpoints:
    """The faults of a run, and the files of their hits and of the trace.

    It is sent to every worker, so it must be cheap to pickle.

    Args:
        faults: in the order in which they act.
        hits: file of hits, one JSON line each: {fault, point, batch, partition, rows, action, seconds, t_us, pid,
            life, session}; `session` is the id of the session that the fault kills or stops.
        trace: file of all reached points (not fsynced), or None. It shows where a random kill hit.
        life: the id of the driver's session, which names the attempt. The driver makes this value.
    """

    faults: tuple[Fault, ...]
    hits: Path
    trace: Path | None
    life: int = field(default_factory=lambda: os.getsid(0), kw_only=True)

    def reach(self, point: str, batch: int, rows: int | None = None, partition: int | None = None) -> None:
        """Reaches a point: notes it in the trace, and acts if the next fault belongs here.

        `rows` is the number of rows that a fault here would affect (None: unknown).
        """
        if self.trace is not None:
            _append(self.trace, {"t_us": _now_us(), "point": point, "batch": batch, "partition": partition})
        if not self.faults:
            return
        before = _lines(self.hits)
        armed = len(before)
        if armed >= len(self.faults):
            return
        fault = self.faults[armed]
        last = json.loads(before[-1]) if before else None
        if fault.point != point or not _fits(fault, batch, rows, last and last["batch"]):
            return
        if last is not None and last["life"] == self.life and not self._stopped(armed - 1).exists():
            return  # the previous fault is about to act on this attempt
        if _is_zombie(before, self.life):
            return
        # The name contains the attempt: one that dies before it writes the hit must not disarm the fault for its
        # successors.
        if not _take(self.hits.with_name(f"{self.hits.name}.{armed}.{self.life}")):
            return  # another task of this batch was first
        hit = {"fault": str(fault), "point": point, "batch": batch, "partition": partition, "rows": rows}
        act = {"action": fault.action, "seconds": fault.seconds or 0.0, "t_us": _now_us(), "pid": os.getpid()}
        _append(self.hits, hit | act | {"life": self.life, "session": os.getsid(0)}, durable=True)
        _signal_session(signal.SIGSTOP)
        if fault.action == KILL:
            _signal_session(signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        if os.getsid(0) == self.life:
            _take(self._stopped(armed))  # all others have stopped; a process that sees this file has been continued
        os.kill(os.getpid(), signal.SIGSTOP)
        _take(self._stopped(armed))

    def asks_for(self, point: str) -> bool:
        """Whether a fault of the run belongs to this point.

        A batch is split into parts for some points, and only if a fault belongs to them.
        """
        return any(fault.point == point for fault in self.faults)

    def _stopped(self, number: int) -> Path:
        return self.hits.with_name(f"{self.hits.name}.{number}.stopped")


def stops_attempt(hit: Mapping[str, Any]) -> bool:
    """Whether a fault kills or stops the attempt, not a Spark worker of the run's own cluster.

    Args:
        hit: a line of the file of hits; older lines have no `session`.
    """
    session = hit.get("session")
    return session is None or bool(session == hit["life"])


def failpoint(name: str) -> None:
    """Reaches a failpoint of a user's sink; does nothing outside a run.

    Args:
        name: small letters, digits and `-`.

    Raises:
        ValueError: in a run, if the name has another form.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    if not _OWN_NAME.fullmatch(name):
        raise ValueError(f"failpoint({name!r}): a name has small letters, digits and `-`, such as 'rows-staged'")
    state = json.loads(Path(path).read_text())
    faults = tuple(parse_fault(text) for text in state["faults"])
    trace = None if state["trace"] is None else Path(state["trace"])
    Failpoints(faults, Path(state["hits"]), trace).reach(f"{OWN}{name}", state["batch"])


def begin_batch(path: Path, failpoints: Failpoints, batch: int) -> None:
    """Writes the file that `failpoint` reads, and sets its path in the environment.

    The environment is that of this process, and its children inherit it.
    """
    state = {
        "faults": [str(fault) for fault in failpoints.faults],
        "hits": str(failpoints.hits),
        "trace": None if failpoints.trace is None else str(failpoints.trace),
        "batch": batch,
    }
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(json.dumps(state))
    new.replace(path)
    os.environ[VARIABLE] = str(path)


def _is_zombie(hits: list[bytes], life: int) -> bool:
    """Whether this attempt was declared dead and has a successor."""
    return any(hit["action"] == ZOMBIE and hit["life"] == life for hit in map(json.loads, hits))


def _fits(fault: Fault, batch: int, rows: int | None, hit_last: int | None) -> bool:
    if fault.batch is not None:
        return batch == fault.batch
    first = (FIRST_BATCH if hit_last is None else hit_last) + (fault.after or 0)
    return batch >= first and rows != 0


def _plain(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def _now_us() -> int:
    return time.time_ns() // 1000


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _append(path: Path, entry: dict[str, object], durable: bool = False) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, json.dumps(entry).encode() + b"\n")
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def _take(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _signal_session(number: signal.Signals) -> None:
    """Sends a signal to every other process of this session.

    The process group would not be enough, because PySpark's daemon leaves it.
    """
    session, own = os.getsid(0), os.getpid()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        try:
            if os.getsid(int(entry.name)) == session:
                os.kill(int(entry.name), number)
        except (ProcessLookupError, PermissionError):
            continue
