"""Every kind of sink: a file in this folder that has `KINDS` is found by that, and is named nowhere else."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from pipeline.sinks.contract import Kind


def _kinds() -> Iterator[Kind]:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        yield from getattr(import_module(f"{__package__}.{module.name}"), "KINDS", ())


SINKS: Mapping[str, Kind] = {kind.name: kind for kind in sorted(_kinds(), key=lambda kind: kind.name)}
