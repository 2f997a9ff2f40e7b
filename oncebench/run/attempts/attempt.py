"""One start of the pipeline, with what its processes have written since.

The attempts of a run append to the same files. So a mark from just before the start separates the lines of an attempt
from those of earlier attempts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebench.delivery.failpoints import stops_attempt
from oncebench.processes.child import Child, lines_of, messages_in
from oncebench.record.json_lines import AllLines, read_lines
from oncebench.record.schema import BATCH, RUNNING
from oncebench.sinks.reader import now_us


@dataclass(frozen=True)
class Mark:
    """How far the attempts of a run have written at a time.

    It counts failpoint hits, bytes of the log and starts of the query.
    """

    t_us: int
    hits: int
    log_bytes: int
    times_running: int


class AttemptFiles:
    """The files to which all attempts of a run append.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.log = folder / "logs" / "pipeline.log"
        self._trace = folder / "trace.jsonl"
        self._hits = AllLines(folder / "hits.jsonl")
        self._progress = AllLines(folder / "progress.jsonl")

    def mark(self) -> Mark:
        """Returns how far the attempts have written."""
        return Mark(now_us(), len(self.hits()), self.log_bytes(), self.times_running())

    def hits(self) -> Sequence[dict[str, Any]]:
        """Failpoints that were hit, oldest first."""
        return self._hits.read()

    def progress(self) -> Sequence[dict[str, Any]]:
        """Progress lines, oldest first."""
        return self._progress.read()

    def passed(self) -> Sequence[dict[str, Any]]:
        """Failpoints that were passed, oldest first; none without `PipelineConfig.trace`."""
        return read_lines(self._trace).items

    def log_bytes(self) -> int:
        """The size of the log."""
        return self.log.stat().st_size if self.log.exists() else 0

    def times_running(self) -> int:
        """The number of attempts whose query has run."""
        return sum(line["kind"] == RUNNING for line in self.progress())


@dataclass
class Attempt:
    """One start of the pipeline.

    Attributes:
        child: the process.
        files: of all attempts of the run.
        before: what the files held before the start.
        exit_recorded: whether the timeline has the end of this attempt.
    """

    child: Child
    files: AttemptFiles
    before: Mark
    exit_recorded: bool = False

    @property
    def running(self) -> bool:
        """Whether the query has run."""
        return self.files.times_running() > self.before.times_running

    @property
    def starting(self) -> bool:
        """Whether the attempt is alive and its query does not run yet."""
        return self.child.alive and not self.running

    @property
    def age_s(self) -> float:
        """Seconds since the start."""
        return (now_us() - self.before.t_us) / 1e6

    def hits(self) -> Sequence[dict[str, Any]]:
        """Failpoints that the attempt has hit."""
        return self.files.hits()[self.before.hits :]

    def batches(self) -> Sequence[dict[str, Any]]:
        """Progress lines of the batches that the attempt has committed."""
        found = [line for line in self.files.progress() if line["kind"] == BATCH and not line.get("recovered")]
        return [line for line in found if line["t_us"] > self.before.t_us]

    def killed(self, or_worker: bool = False) -> bool:
        """Whether a failpoint has killed the attempt, or, if `or_worker`, a Spark worker of it.

        A failpoint writes its hit to disk before it kills, so the hit is there at the death.
        """
        return any(hit["action"] == "kill" and (or_worker or stops_attempt(hit)) for hit in self.hits())

    def last_failpoint(self) -> Mapping[str, Any] | None:
        """The failpoint that the attempt passed last, if any."""
        passed = self.files.passed()
        if not passed or passed[-1]["t_us"] < self.before.t_us:
            return None
        return {name: passed[-1][name] for name in ("point", "batch")}

    def last_words(self) -> str:
        """Returns the final message of the attempt, or the last line of its log."""
        log, own = self.child.log, self.before.log_bytes
        messages = messages_in(log, own)
        return (messages or [line for line in lines_of(log, own) if line.strip()] or ["it left no log"])[-1]
