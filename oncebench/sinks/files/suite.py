"""The file sinks in the suite: a folder per run, and a committed reader."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from oncebench.sinks.files.formats import Format
from oncebench.sinks.files.reader import read_folder
from oncebench.sinks.files.sink import FORMATS, KINDS
from oncebench.sinks.reader import Snapshots
from oncebench.sinks.suite import Place, SuiteSink, Traits


def _provide(place: Place) -> dict[str, Any]:
    folder = place.folder / "output"
    folder.mkdir()
    return {"output": str(folder.absolute()), "key": place.key}


def _read(form: Format, target: Mapping[str, Any]) -> Snapshots:
    return read_folder(form, Path(target["output"]), target["key"])


SUITE_SINKS = tuple(
    SuiteSink(
        kind=kind,
        traits=Traits(ordered=True, has_write_timestamps=True),
        provide=_provide,
        read=partial(_read, FORMATS[kind.name]),
        writes_local_files=True,
    )
    for kind in KINDS
)
