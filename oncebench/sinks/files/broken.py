"""Files, broken on purpose: written under their final names, with no hidden place and no decision. Not for use.

A task that dies leaves the file that it was writing, whole or not, and the replay writes another beside it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oncebench.delivery.contract import EXACTLY_ONCE, Support
from oncebench.delivery.protocols import at_least_once
from oncebench.sinks.files.formats import JSON_LINES
from oncebench.sinks.files.sink import KINDS as _SOUND
from oncebench.sinks.files.sink import FileSink, FileWriter, Names

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.config import PipelineConfig


class VisibleNames(Names):
    """Temporary files stand where readers look."""

    @property
    def pending(self) -> Path:
        return self.folder


class VisibleFiles(FileSink):
    """Writes each file where it will stay."""

    def acknowledged(self) -> FileWriter:
        names = VisibleNames(self._names.folder, self._names.sink_id, self._names.generation, self._names.suffix)
        return FileWriter(names, self._form, durable=True, shown_as=Names.same)


def _open(config: PipelineConfig) -> FileSink:
    return VisibleFiles(JSON_LINES, config.output["output"], config.sink_id, config.partitions)


SUPPORTS = (
    Support(EXACTLY_ONCE, "final-names", "files under their final names", shows="DUP", shown_by=("after-prepare",)),
)
KINDS = (
    replace(
        _SOUND[0],
        name="broken-files",
        supports=SUPPORTS,
        lacks={},
        open=_open,
        protocols={(EXACTLY_ONCE, "final-names"): at_least_once},
    ),
)
