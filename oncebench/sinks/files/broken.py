"""A deliberately broken file sink: writes visible files without a decision. Not for use.

A task that dies leaves its file there, complete or not, and the replay writes another file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from oncebench.delivery.contract import EXACTLY_ONCE, SinkSettings, Support
from oncebench.delivery.protocols import at_least_once
from oncebench.sinks.files.formats import JSON_LINES
from oncebench.sinks.files.names import Names
from oncebench.sinks.files.sink import FileSink, FileWriter
from oncebench.sinks.files.suite import SUITE_SINKS as _SOUND


class VisibleNames(Names):
    """Puts temporary files into the folder that readers list."""

    @property
    def pending(self) -> Path:
        return self.folder


class VisibleFiles(FileSink):
    """Writes each file where readers find it at once."""

    def acknowledged_writer(self) -> FileWriter:
        names = VisibleNames(self._names.folder, self._names.sink_id, self._names.generation, self._names.suffix)
        return FileWriter(names, self._form, durable=True, visible_as=Names.same)


def _open(settings: SinkSettings) -> FileSink:
    return VisibleFiles(JSON_LINES, settings.output["output"], settings.sink_id, settings.partitions)


SUPPORTS = (
    Support(
        EXACTLY_ONCE,
        "final-names",
        "files under their final names",
        expected_anomaly="DUP",
        triggering_faults=("after-prepare",),
    ),
)
KINDS = (
    replace(
        _SOUND[0].kind,
        name="broken-files",
        supports=SUPPORTS,
        lacks={},
        open=_open,
        protocols={(EXACTLY_ONCE, "final-names"): at_least_once},
    ),
)
SUITE_SINKS = (replace(_SOUND[0], kind=KINDS[0]),)
