"""Every kind of sink: those of this folder, and those of installed packages.

A folder lists what jobs need in `KINDS` of `sink.py`, and what the suite needs in `SUITE_SINKS` of `suite.py`. Its
`broken.py`, where there is one, lists deliberately broken kinds in both. `packages` describes other packages.

Promise: a package that cannot be used breaks no other sink (`packages`). A run of a sink whose package has no usable
`SUITE_SINKS` is refused with the reason.
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
from oncebench.sinks.packages import LEFT_OUT, NotUsable, SinkPackage, named, usable
from oncebench.sinks.suite import SuiteSink

_KINDS, _SUITE = ("sink", "broken"), ("suite", "broken")
# Folders with a sink whose package is not installed -> how to install it. Their kinds are not in `SINKS`.
_not_installed: dict[str, str] = {}


def _ours(name: str, modules: tuple[str, ...]) -> Iterator[Any]:
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


def _kinds_in(package: SinkPackage) -> Mapping[str, SinkKind]:
    kinds = named(package.members("KINDS", _KINDS), SinkKind, lambda kind: kind.name)
    if not kinds:
        raise NotUsable(f"{package.module} has no KINDS")
    return kinds


def find_kinds() -> tuple[dict[str, SinkKind], dict[str, SinkPackage]]:
    """Returns every kind, and the package of each kind that an installed package brings."""
    kinds = {kind.name: kind for kind in _ours("KINDS", _KINDS)}
    packages: dict[str, SinkPackage] = {}
    for package, found in usable("the sinks", tuple(kinds), _kinds_in):
        kinds |= found
        packages |= dict.fromkeys(found, package)
    return dict(sorted(kinds.items())), packages


SINKS: Mapping[str, SinkKind]
# Of the sinks of installed packages only.
PACKAGES: Mapping[str, SinkPackage]
SINKS, PACKAGES = find_kinds()


class SuiteSinks(dict[str, SuiteSink]):
    """Sinks as the suite runs them, by name.

    `[name]` raises `RefusedStart` if the suite has no such sink, or cannot run it here.
    """

    def __missing__(self, name: str) -> SuiteSink:
        why = LEFT_OUT.get(PACKAGES[name]) if name in PACKAGES else None
        remedy = f"Name one of: {', '.join(self)}." if why is None else "Or name another sink."
        raise RefusedStart(f"sink {name} cannot be run here: {why or 'the suite has no such sink.'} {remedy}")


@cache
def suite_sinks() -> Mapping[str, SuiteSink]:
    """Returns every kind as the suite runs it, by name; imports the readers when called."""
    sinks = {sink.kind.name: sink for sink in _ours("SUITE_SINKS", _SUITE)}
    for _, found in usable("the suite side", tuple(sinks), _suite_sinks_in):
        sinks |= found
    return SuiteSinks(sorted(sinks.items()))


def _suite_sinks_in(package: SinkPackage) -> Mapping[str, SuiteSink]:
    found = named(package.members("SUITE_SINKS", _SUITE), SuiteSink, lambda sink: sink.kind.name)
    kinds = {name for name, its in PACKAGES.items() if its == package}
    if found.keys() != kinds:
        raise NotUsable(
            f"KINDS has {', '.join(sorted(kinds))}, and SUITE_SINKS has {', '.join(sorted(found)) or 'none'}"
        )
    return found


def find_kind(name: str) -> SinkKind:
    """Returns the kind of that name.

    Raises:
        RefusedStart: a package that it needs is not installed, or there is no such kind; the message then lists the
            kinds and what was left out.
    """
    if name in SINKS:
        return SINKS[name]
    if name in _not_installed:
        raise RefusedStart(f"sink {name} cannot be used here: {_not_installed[name]}")
    reasons = "".join(f" {why}" for why in LEFT_OUT.values())
    raise RefusedStart(f"there is no sink {name!r}. Name one of: {', '.join(SINKS)}.{reasons}")
