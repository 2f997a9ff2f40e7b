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
from types import ModuleType
from typing import Any

from oncebench.delivery.contract import SinkKind
from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.extras import how_to_install
from oncebench.sinks.suite import SuiteSink

# Folders with a sink whose package is not installed -> how to install it. Their kinds are not in `SINKS`.
_not_installed: dict[str, str] = {}


def _listed(name: str, modules: tuple[str, ...]) -> Iterator[Any]:
    for folder in pkgutil.iter_modules([str(Path(__file__).parent)]):
        for module in modules if folder.ispkg else ():
            path = f"{__package__}.{folder.name}.{module}"
            if find_spec(path):
                yield from getattr(_imported(path, folder.name if module == "sink" else None), name, ())


def _imported(path: str, sink: str | None) -> ModuleType | None:
    """Returns a module of a sink's folder; None if a package that it needs is not installed."""
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        how = how_to_install(error)
        if how is None:
            raise
        if sink is not None:
            _not_installed[sink] = how
        return None


SINKS: Mapping[str, SinkKind] = {
    kind.name: kind for kind in sorted(_listed("KINDS", ("sink", "broken")), key=lambda kind: kind.name)
}


def find_kind(name: str) -> SinkKind:
    """Returns the kind of that name.

    Raises:
        RefusedStart: there is none, or a package that it needs is not installed.
    """
    if name in SINKS:
        return SINKS[name]
    if name in _not_installed:
        raise RefusedStart(f"sink {name} cannot be used here: {_not_installed[name]}")
    raise RefusedStart(f"there is no sink {name!r}; there are: {', '.join(sorted(SINKS))}")


@cache
def suite_sinks() -> Mapping[str, SuiteSink]:
    """Returns every kind as the suite runs it, by name; imports the readers when called."""
    found = _listed("SUITE_SINKS", ("suite", "broken"))
    return {sink.kind.name: sink for sink in sorted(found, key=lambda sink: sink.kind.name)}
