"""Runs `oncebench certify` inside a test of pytest, and fails the test with the evidence.

Promise: a test passes if every scenario has an answer and keeps the required guarantee. A failure has no traceback. The
command runs in a process of its own, in the folder in which pytest runs. The process is gone when the test ends, also
by Ctrl-C or a time limit; its children are gone a second later. All files are below the test's own folder.

Failures: if another process cannot import a function by its name, the test fails before anything starts.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import pytest

from oncebench.errors import ExitCode
from oncebench.processes.child import read_log, start, tail

Function = Callable[..., Any]
# `-P`: a file of the user's folder must not hide a module that the command imports.
COMMAND = (sys.executable, "-P", "-c", "from oncebench.cli import main; main()")
# The command line begins its errors with this name.
ERROR = "oncebench: "


class Certify:
    """Certifies the sinks of one test.

    Args:
        folder: the test's own folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)

    def __call__(
        self,
        write_batch: Function,
        *,
        reader: Function,
        setup: Function | None = None,
        scenarios: Sequence[str] = (),
        require: str = "exactly-once",
        spark: Mapping[str, str] | None = None,
    ) -> None:
        """Fails the test if the sink breaks the required guarantee, or if a scenario has no answer.

        Args:
            write_batch: the sink: a function for foreachBatch, which takes `(df, batch_id)`.
            reader: a function without parameters that returns the rows that a reader of the sink sees, as dicts.
            setup: a function without parameters that empties the sink, and deletes what the sink remembers of earlier
                batches. It is called before each run.
            scenarios: names of the scenarios to run. Empty: all scenarios, which take 9 to 17 minutes.
            require: the guarantee that the sink must keep: exactly-once, at-least-once or at-most-once.
            spark: Spark settings that `write_batch` needs.
        """
        functions = {"write_batch": write_batch, "reader": reader, **({} if setup is None else {"setup": setup})}
        names = {role: _name(role, function) for role, function in functions.items()}
        words = [names["write_batch"], "--reader", names["reader"]]
        words += ["--setup", names["setup"]] if setup is not None else []
        words += [word for name, value in (spark or {}).items() for word in ("--spark", f"{name}={value}")]
        only = [scenarios] if isinstance(scenarios, str) else scenarios
        words += [word for name in only for word in ("--only", name)]
        words += ["--require", require]
        folder, paths = self._folder / f"certify-{next(self._numbers)}", _import_folders(functions.values())
        code = _run(words, folder, paths)
        failure = _failure(names["write_batch"], require, code, folder, paths)
        if failure:
            _fail(failure)


def _fail(text: str) -> NoReturn:
    pytest.fail(text, pytrace=False)


def _name(role: str, function: Function) -> str:
    """Returns `module:function`, by which another process imports the function."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found: object = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    if module == "__main__" or found is None or found != function:
        shown = f"{module}.{name}" if name else repr(function)
        _fail(
            f"certify: {role} is {shown}. Another process cannot import it by that name. Define {role} with `def` at "
            "the top level of a module. A lambda, a partial or a function inside a function does not work."
        )
    return f"{module}:{name}"


def _import_folders(functions: Iterable[Function]) -> list[str]:
    """Returns the folders from which the functions' modules are imported.

    It leaves out each folder in which another process looks anyway.
    """
    known = {str(Path.cwd()), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    known |= set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    folders = (_import_folder(function.__module__) for function in functions)
    return list(dict.fromkeys(folder for folder in folders if folder and folder not in known))


def _import_folder(module: str) -> str:
    file = getattr(sys.modules[module], "__file__", None)
    if not file:
        return ""
    path = Path(file).absolute()
    path = path.parent if path.stem == "__init__" else path
    return str(path.parents[module.count(".")])


def _run(words: Sequence[str], folder: Path, paths: Sequence[str]) -> int | None:
    """Runs the command; returns its exit code."""
    folder.mkdir()
    files = {"--work-dir": "work", "--results": "results", "--certificate": "certificate.md", "--junit": "junit.xml"}
    options = [word for option, name in files.items() for word in (option, str(folder / name))]
    inherited = os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (*paths, inherited)))}
    command = [*COMMAND, "certify", *words, *options]
    with start("oncebench certify", command, folder / "log.txt", env=environment, cwd=Path.cwd()) as child:
        child.wait(math.inf)  # a limit of its own would be too short on some machine; pytest-timeout has one for tests
    return child.returncode


def _failure(sink: str, require: str, code: int | None, folder: Path, paths: Sequence[str]) -> str:
    """Returns the text with which the test fails, or an empty text."""
    if code == ExitCode.KEPT:
        return ""
    if code not in (ExitCode.BROKEN, ExitCode.ERROR) or not (folder / "certificate.md").exists():
        return f"{sink} was not certified. {_error(folder / 'log.txt')}"
    head = f"breaks {require}" if code == ExitCode.BROKEN else f"is not proven to keep {require}"
    scenarios = "\n\n".join(_scenarios(ElementTree.parse(folder / "junit.xml"), paths))  # noqa: S314  a file of our own child
    return f"{sink} {head}.\n\n{scenarios}\n\nThe certificate and the log are in {folder}"


def _scenarios(junit: ElementTree.ElementTree[Any], paths: Sequence[str]) -> Iterator[str]:
    """Yields a text for each scenario that was broken or has no answer.

    Each text ends with the command that runs the scenario again.
    """
    for case in junit.iter("testcase"):
        lines = []
        for failure in case.iter("failure"):
            lines += [f"{case.get('name')}: {failure.get('message')}", *(failure.text or "").splitlines()]
        lines += [f"{case.get('name')} has no answer: {each.get('message')}" for each in case.iter("error")]
        if lines:
            yield "\n  ".join([*lines, f"{_prefix(paths)}{case.findtext('system-out')}"])


def _prefix(paths: Sequence[str]) -> str:
    return f"PYTHONPATH={shlex.quote(os.pathsep.join(map(os.path.relpath, paths)))} " if paths else ""


def _error(log: Path) -> str:
    """Returns the error with which the command ended, or the last lines of its log."""
    _, found, error = f"\n{read_log(log).decode('utf-8', 'replace')}".rpartition(f"\n{ERROR}")
    return error.strip() if found else f"The end of {log}:\n{tail(log)}"
