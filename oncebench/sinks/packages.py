"""Finds the sinks of installed packages, by entry points of the group `oncebench.sinks`.

An entry point names a module. If the module is a folder, it is read like a folder here: `KINDS` is in its `sink.py`,
and so on. If it is a single file, the file holds everything.

Promise: `sink_packages` imports nothing. A package that cannot be used is left out as a whole, with one warning that
names its distribution, and all other sinks stay usable.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

GROUP = "oncebench.sinks"
OURS = "oncebench"

_NAME = re.compile(r"[a-z][a-z0-9-]*")  # becomes a part of topics, folders and ids
_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class NotUsable(Exception):
    """A package breaks a rule. The text is the reason, as a part of a sentence."""


@dataclass(frozen=True, order=True)
class SinkPackage:
    """An installed package with sinks.

    Attributes:
        distribution: its name for pip.
        version: of the distribution.
        module: the module that its entry point names.
    """

    distribution: str
    version: str
    module: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    def members(self, name: str, files: Iterable[str]) -> list[Any]:
        """Returns the members of the lists `name` in these files, or in the single file.

        Raises:
            NotUsable: there is no such module. Importing it may raise any other error.
        """
        return [each for module in self._modules(files) for each in getattr(import_module(module), name, ())]

    def folder(self) -> Path | None:
        """Returns the folder of the module's files.

        Returns None if the module is a single file or is not there.
        """
        try:
            spec = find_spec(self.module)
        except Exception:  # a parent of the module cannot be imported, which `members` reports
            return None
        places = list(spec.submodule_search_locations or ()) if spec else []
        return Path(places[0]) if places else None

    def _modules(self, files: Iterable[str]) -> list[str]:
        spec = find_spec(self.module)
        if spec is None:
            raise NotUsable(f"there is no module {self.module!r}")
        if spec.submodule_search_locations is None:
            return [self.module]
        return [path for file in files if find_spec(path := f"{self.module}.{file}")]


# Why a package, or a part of it, was left out.
LEFT_OUT: dict[SinkPackage, str] = {}


@cache
def sink_packages() -> tuple[SinkPackage, ...]:
    """Returns the installed packages with sinks, in the order of their names."""
    found = entry_points(group=GROUP)
    return tuple(
        sorted(SinkPackage(f"{each.dist.name}", f"{each.dist.version}", each.value) for each in found if each.dist)
    )


def usable(
    part: str, taken: Iterable[str], read: Callable[[SinkPackage], Mapping[str, T]]
) -> Iterator[tuple[SinkPackage, Mapping[str, T]]]:
    """Yields each usable package with what `read` finds in it, by name.

    Leaves out and reports a package whose `read` raises, or whose names exist already.

    Args:
        part: what is read, for the warning.
        taken: names that exist already.
        read: reads a package.
    """
    owners = dict.fromkeys(taken, OURS)
    for package in sink_packages():
        if package in LEFT_OUT:
            continue
        try:
            found = read(package)
            for name in found:
                if name in owners:
                    raise NotUsable(f"the name {name!r} belongs to {owners[name]}")
        except (Exception, SystemExit) as error:
            LEFT_OUT[package] = f"{part} of {package} cannot be used: {_reason(package, error)}."
            _LOG.warning("%s", LEFT_OUT[package].removesuffix("."))
            continue
        owners |= dict.fromkeys(found, package.distribution)
        yield package, found


def named(found: Iterable[Any], kind: type[T], name_of: Callable[[T], str]) -> dict[str, T]:
    """Returns the members of a list by name.

    Raises:
        NotUsable: a member has another type, or its name is not possible or occurs twice.
    """
    members: dict[str, T] = {}
    for each in found:
        if not isinstance(each, kind):
            raise NotUsable(f"a member is {type(each).__name__}, and must be {kind.__name__}")
        name = name_of(each)
        if not _NAME.fullmatch(name):
            raise NotUsable(f"the name {name!r} must begin with a letter, and have only a-z, 0-9 and -")
        if name in members:
            raise NotUsable(f"it lists {name!r} twice")
        members[name] = each
    return members


def _reason(package: SinkPackage, error: BaseException) -> str:
    if isinstance(error, NotUsable):
        return f"{error}. Update {package.distribution}, or uninstall it"
    first = (str(error).splitlines() or [""])[0]
    return (
        f"importing {package.module} raised {type(error).__name__}{f' ({first})' if first else ''}. Install what it "
        f"lacks, update it or {OURS}, or uninstall it; python -c 'import {package.module}' shows where it fails"
    )
