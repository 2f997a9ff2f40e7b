"""Every kind of sink, found by its folder: `KINDS` of `sink.py` and, where there is one, of `broken.py`."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from oncebench.delivery.contract import Kind

_MODULES = ("sink", "broken")


def _kinds() -> Iterator[Kind]:
    for folder in pkgutil.iter_modules([str(Path(__file__).parent)]):
        for name in _MODULES if folder.ispkg else ():
            module = f"{__package__}.{folder.name}.{name}"
            if find_spec(module):
                yield from getattr(import_module(module), "KINDS", ())


SINKS: Mapping[str, Kind] = {kind.name: kind for kind in sorted(_kinds(), key=lambda kind: kind.name)}
