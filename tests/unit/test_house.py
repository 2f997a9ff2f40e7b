"""The house rules that no linter checks.

They are small files, few files per folder, and links that lead somewhere.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

import pytest

from oncebench.delivery.failpoints import POINTS
from tests import ROOT

ROOMS = ("loadgen", "pipeline", "oncebench", "benchmarks", "proofs", "peers", "tools", "contrib")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
# The model has one file per part of the protocol; it is read as a whole.
EXEMPT = {"proofs/protocol_model"}
FOLDERS = sorted({str(path.parent.relative_to(ROOT)) for path in FILES} - EXEMPT)
TOP_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*TOP_PAGES, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "contrib").glob("*/*.md"))]
MOST_LINES = 400  # more is more than one idea
MOST_FILES = 12  # more cannot be taken in at a glance
FIRST_LINE = 90  # characters of a docstring's first line; an editor's list of names shows no more


@functools.cache
def docstrings(path: Path) -> list[str]:
    """The docstrings of a module, its classes and functions, its own first; empty where there is none."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    walked = ast.walk(ast.parse(path.read_text()))
    return [ast.get_docstring(node) or "" for node in walked if isinstance(node, nodes)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_small_and_have_a_docstring(path: Path) -> None:
    assert path.read_text().count("\n") <= MOST_LINES
    assert docstrings(path)[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_first_line_of_a_docstring_says_one_thing(path: Path) -> None:
    assert [line for line in (text.partition("\n")[0] for text in docstrings(path)) if len(line) > FIRST_LINE] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_hold_few_files(folder: str) -> None:
    files = [path for path in (ROOT / folder).glob("*.py") if path.stem not in ("__init__", "__main__")]
    assert len(files) <= MOST_FILES


def test_nothing_is_kept_here_that_an_installer_fetches() -> None:
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [name for name in kept if name.endswith((".whl", ".jar", ".tar.gz", ".tgz", ".zip", ".so"))] == []


def test_the_tests_files_are_small_too() -> None:
    lines = {path: path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def anchors(page: Path) -> set[str]:
    """The anchors that code hosts give to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for link in re.findall(r"\]\(([^):]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_every_failpoint_is_told_of() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    assert re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE) == list(POINTS)
