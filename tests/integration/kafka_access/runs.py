"""Whole runs of the command line against the secured broker, and the search for its secret.

The search covers every file below the run's folder, with temporary files, reports and the page. It also covers the
command lines and environments of all processes while the run lasts. Another user can read a command line and cannot
read an environment. Therefore only a secret that the user keeps in the environment may be in environments.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebench.site.write import publish
from tests import COMMAND, ROOT
from tests.integration.kafka_access.secured import PASSWORD

CANARY = PASSWORD.encode()
LOAD = ("--rate", "200", "--duration", "5", "--warmup", "0", "--max-events-per-batch", "100")
LIMIT_S = 500


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        leaks: the places where the secret was seen.
    """

    done: subprocess.CompletedProcess[str]
    leaks: frozenset[str]

    @property
    def text(self) -> str:
        return self.done.stdout + self.done.stderr


def command(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> Ended:
    """Runs `oncebench` in an empty folder; `environment` may have the secret."""
    program = [*COMMAND, *words]
    given = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp"), **(environment or {})}
    (folder / "tmp").mkdir(exist_ok=True)
    with _watched("cmdline", *(() if environment else ("environ",))) as seen:
        done = subprocess.run(
            program, capture_output=True, cwd=folder, env=given, timeout=LIMIT_S, check=False, text=True
        )
    printed = {name for name, text in (("stdout", done.stdout), ("stderr", done.stderr)) if PASSWORD in text}
    return Ended(done, frozenset(seen | printed | set(_files_with_the_secret(folder))))


def report_of(folder: Path, ended: Ended) -> dict[str, Any]:
    """The report of a run with `--json report.json`.

    The function also searches the page that is made from the report for the secret.
    """
    assert ended.done.returncode == 0, ended.text
    assert ended.leaks == set()
    publish(folder / "results" / "local")
    assert _files_with_the_secret(folder) == []
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def _files_with_the_secret(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and CANARY in path.read_bytes()]


@contextmanager
def _watched(*names: str) -> Iterator[set[str]]:
    """Collects the processes that have the secret in these files of /proc."""
    found: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            for file in (file for name in names for file in Path("/proc").glob(f"[0-9]*/{name}")):
                try:
                    text = file.read_bytes()
                except OSError:  # it has ended
                    continue
                if CANARY in text:
                    found.add(f"{file}: {text[:200]!r}")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()
