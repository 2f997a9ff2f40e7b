"""Attempts of a driver: real journal, sink, protocol and batch over a stand-in for Spark.

Promise: the steps and their order are those of `oncebench.jobs.start.start_sink`. The function that handles a batch is
the one that a running query calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oncebench.delivery.contract import AT_LEAST_ONCE, SinkKind, SinkSettings, Support
from oncebench.delivery.journal import open_journal
from oncebench.delivery.protocols import Protocol, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.delivery.starts.drivers import Drivers
from oncebench.delivery.starts.gaps import Gaps
from oncebench.jobs.batches import Batches
from oncebench.jobs.checkpoint import last_batch
from oncebench.jobs.output import Target
from oncebench.jobs.start import identity_of, refuse_older_checkpoint
from oncebench.sinks.files.folder import names_in
from oncebench.sinks.files.sink import FORMATS
from oncebench.sinks.reader import Rows as Shown
from oncebench.sinks.registry import suite_sinks
from pipeline.progress import Progress
from pipeline.rows import KEY
from proofs.crash_states.spark import PARTITIONS, Logs, Put, Row, Rows, row_in

SINK_ID = "s"


@dataclass(frozen=True)
class Pipeline:
    """A pipeline: a kind of file sink under a guarantee.

    Attributes:
        kind, support: the sink and the guarantee.
        output: the folder of files, below the pipeline's folder.
        offsets_forced: whether Spark's offset log is assumed to reach the disk at once.
        protocol: replaces the protocol of the guarantee, if given.
        broken: replaces the sound sink, if given.
    """

    kind: SinkKind
    support: Support
    output: str = "output"
    offsets_forced: bool = True
    protocol: Protocol | None = None
    broken: SinkKind | None = None

    @property
    def sound(self) -> Pipeline:
        """The same pipeline without deliberately broken parts."""
        return replace(self, protocol=None, broken=None)


class Workspace:
    """A pipeline's folder with its checkpoint and its output; its record is elsewhere."""

    def __init__(self, pipeline: Pipeline, root: Path, record: Path) -> None:
        self.pipeline, self.root = pipeline, root
        self.output = root / pipeline.output
        self.checkpoint = root / "checkpoint"
        self._progress = Progress(record / "progress.jsonl", whole=False)
        kind, support = pipeline.kind, pipeline.support
        self._target = Target(kind, support, SINK_ID, str(self.output), self.checkpoint)

    def logs(self, put: Put) -> Logs:
        """Spark's logs."""
        return Logs(self.checkpoint, put, self.pipeline.offsets_forced)

    def run_attempt(
        self, last: int, available: int, put: Put, as_actor: Callable[[str], None] = lambda _: None
    ) -> None:
        """Runs one driver until batch `last` is done.

        The driver starts, finishes an open batch, and continues. With `last` -1 it only starts.

        Raises:
            PipelineError: the driver refuses to start or to continue.
        """
        pipeline, target = self.pipeline, self._target
        settings = SinkSettings({"output": target.name}, target.sink_id, PARTITIONS, target.checkpoint)
        sink = (pipeline.broken or pipeline.kind).open(settings)
        journal = open_journal(target.checkpoint, identity_of(target, PARTITIONS), settings.driver)
        if pipeline.support.guarantee != AT_LEAST_ONCE:  # see `OutputChecks.before_sink`
            gaps = Gaps(journal.folder, None)
            Drivers(journal).follow(sink.holder(), last_batch(target.checkpoint), target.sink_id, gaps)
        sink.start(pipeline.support, journal.generation, journal.newest_prepared())
        journal.check_still_ours()
        refuse_older_checkpoint(sink, target)
        logs = self.logs(put)
        logs.make()
        protocol = pipeline.protocol or protocol_of(pipeline.kind, pipeline.support)
        deliver = Batches(
            protocol, sink, journal, PARTITIONS, Quarantine("", "", {}), delivered=(self._progress.write_delivered,)
        )
        while last >= 0 and last not in logs.done():
            batch, count = logs.begin(available)
            rows: Any = Rows(batch, count, FORMATS[pipeline.kind.name].suffix, as_actor)
            deliver(rows, batch)
            logs.end(batch)
        sink.close()

    def visible(self) -> Counter[Row]:
        """Every row that a committed reader sees."""
        found: Counter[Row] = Counter()

        def take(rows: Shown) -> None:
            found.update(row_in(value or b"") for value in rows.value)

        target: Mapping[str, Any] = {"output": self._target.name}
        reader = suite_sinks()[self.pipeline.kind.name].read({**target, "key": KEY})
        reader.read_to_end(take, settle_s=0.0, idle_s=0.0)
        reader.close()
        return found

    def leftovers(self) -> list[str]:
        """Returns every leftover file of the sink or the journal.

        A leftover is neither visible, nor a note, nor a journal entry.
        """
        visible = names_in(self.output) | {f".oncebench-{SINK_ID}.{note}.json" for note in ("driver", "claimed")}
        sink = [path for path in self.output.rglob("*") if path.is_file() and path.name not in visible]
        journal = [path for path in (self.checkpoint / "journal").iterdir() if path.name.startswith(".")]
        return sorted(str(path.relative_to(self.root)) for path in sink + journal)
