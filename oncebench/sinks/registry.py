"""Every kind of sink, found by its folder.

A folder lists what jobs need in `KINDS` of `sink.py`, and what the suite needs in `SUITE_SINKS` of `suite.py`. Its
`broken.py`, where there is one, lists deliberately broken kinds in both.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oncebench.delivery.contract import SinkKind
from oncebench.sinks.suite import SuiteSink


def _listed(name: str, modules: tuple[str, ...]) -> Iterator[Any]:
    for folder in pkgutil.iter_modules([str(Path(__file__).parent)]):
        for module in modules if folder.ispkg else ():
            path = f"{__package__}.{folder.name}.{module}"
            if find_spec(path):
                yield from getattr(import_module(path), name, ())


SINKS: Mapping[str, SinkKind] = {
    kind.name: kind for kind in sorted(_listed("KINDS", ("sink", "broken")), key=lambda kind: kind.name)
}


@cache
def suite_sinks() -> Mapping[str, SuiteSink]:
    """Returns every kind as the suite runs it, by name; imports the readers when called."""
    found = _listed("SUITE_SINKS", ("suite", "broken"))
    return {sink.kind.name: sink for sink in sorted(found, key=lambda sink: sink.kind.name)}
