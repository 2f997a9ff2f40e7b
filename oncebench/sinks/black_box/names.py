"""Refuses names of a user's functions and files that Python would take for something else.

Spark's Python workers look for each module in the user's folder first, and every process then looks in the folders of
PYTHONPATH. So a file there replaces a module of the same name. This module refuses the names of Python's standard
library, of this project, and of the packages that it requires.

Failures: a name is refused (`UserMistake`).
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import ClassVar

from oncebench.delivery.errors import RefusedStart

_HOME = Path(__file__).resolve().parents[3]
_OURS = ("oncebench", "pipeline", "loadgen")
# Spark's own instructions put its folder `python` on PYTHONPATH.
_OF_SPARK = ("pyspark",)
# The name at the start of a requirement, such as `psycopg[binary]>=3.2,<4` (PEP 508).
_REQUIRED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class UserMistake(RefusedStart):
    """A user's function cannot be used. The message has the reason, and what to change."""

    exit_code: ClassVar[int] = 2


def module_and_name(spec: str) -> tuple[str, str]:
    """Returns the parts of `module:function`.

    Raises:
        UserMistake: the text has another form.
    """
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise UserMistake(f"{spec!r} is not module:function. Give both names, such as my_module:write_batch.")
    meant = module.removesuffix(".py").replace("/", ".").strip(".")
    if "/" in module or module.endswith(".py"):
        raise UserMistake(
            f"{spec!r} names a file. Give the module without a path and without .py, as Python imports it: "
            f"{meant or 'my_module'}:{name}."
        )
    if module.startswith("."):
        raise UserMistake(f"{spec!r} begins with a dot. Give the whole name of the module: {meant}:{name}.")
    return module, name


def refuse_taken_names(*folders: Path) -> None:
    """Refuses folders whose modules would replace those of Python, this project or its packages.

    Raises:
        UserMistake: a file or package in a folder has such a name.
    """
    for folder in dict.fromkeys(folders):
        for name, path in sorted(_modules_in(folder)):
            owner = _owner(name)
            if owner and not _is_owners(name, path):
                shown = path.parent if path.name == "__init__.py" else path
                away = (
                    "run the command in a folder without it"
                    if folder == Path.cwd()
                    else (f"take {folder} out of PYTHONPATH")
                )
                raise UserMistake(
                    f"{shown} has the name of {owner}, and would be imported in its place. Rename it, or {away}."
                )


def folders_of_path() -> list[Path]:
    """Returns the folders of PYTHONPATH."""
    return [Path(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


def _modules_in(folder: Path) -> Iterable[tuple[str, Path]]:
    """Yields (name, file) of each module and package.

    A folder without `__init__.py` hides no other module.
    """
    for path in folder.glob("*.py"):
        yield path.stem, path
    for path in folder.glob("*/__init__.py"):
        yield path.parent.name, path


def _owner(name: str) -> str:
    """Returns the owner of a name, in words; empty if no process of a run needs such a module."""
    if name in sys.stdlib_module_names:
        return f"Python's module {name}"
    if name in _OURS:
        return f"oncebench's package {name}"
    found = [each for each in _distributions().get(name, ()) if _normal(each) in _required()]
    return f"the package {found[0]}, which oncebench requires" if found else ""


def _is_owners(name: str, path: Path) -> bool:
    """Whether the file belongs to the owner of the name.

    The owner's folder may be on PYTHONPATH, or be the current folder.
    """
    if name in sys.stdlib_module_names:
        return path.resolve().is_relative_to(Path(sysconfig.get_path("stdlib")).resolve())
    if name in _OURS:
        return path.resolve() in (_HOME / name / "__init__.py", _HOME / f"{name}.py")
    relative = Path(name, path.name) if path.name == "__init__.py" else Path(path.name)
    places = (metadata.distribution(each).locate_file(relative) for each in _distributions()[name])
    return name in _OF_SPARK or path.resolve() in [Path(str(place)).resolve() for place in places]


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Returns the installed distributions by the names of their modules."""
    return metadata.packages_distributions()


@cache
def _required() -> set[str]:
    """Returns the names of oncebench's requirements and of their own requirements.

    The requirements of oncebench's extras are among them.
    """
    waiting, known = ["oncebench"], set[str]()
    while waiting:
        name = waiting.pop()
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of an extra that is not installed
            continue
        needed = [each for each in requirements if name == "oncebench" or "extra ==" not in each]
        names = {_normal(found[0]) for each in needed if (found := _REQUIRED.match(each))}
        waiting += names - known
        known |= names
    return known


def _normal(distribution: str) -> str:
    """Returns the name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
