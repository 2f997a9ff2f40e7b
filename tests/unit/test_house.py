"""The rules of the house: imports go one way, files stay small, every file is told of in docs/whats_here.md."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from pipeline.failpoints import POINTS

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "loadgen": {"loadgen"},
    "pipeline": {"pipeline"},
    "oncebench": {"oncebench", "loadgen", "pipeline"},
    "benchmarks": {"benchmarks", "oncebench"},
}
FILES = sorted(path for room in MAY_IMPORT for path in (ROOT / room).rglob("*.py"))
MOST_LINES = 400
# Made by runs; a clean clone has none of them.
MADE_BY_RUNS = {"results/", "results/local/"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way_and_files_are_small_and_told_of(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    assert imported(path) & MAY_IMPORT.keys() <= MAY_IMPORT[room]
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES
    assert ast.get_docstring(ast.parse(text)), "a module says what it promises"
    heading = f"## {path.parent.relative_to(ROOT)}/"
    section = (ROOT / "docs" / "whats_here.md").read_text().split(heading, 1)[1].split("\n## ", 1)[0]
    assert f"- `{path.name}`: " in section, f"docs/whats_here.md does not tell of {path.name}"


def test_nothing_is_kept_here_that_an_installer_fetches() -> None:
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [name for name in kept if name.endswith((".whl", ".jar", ".tar.gz", ".tgz", ".zip", ".so"))] == []


def test_the_tests_files_are_small_too() -> None:
    lines = {path: path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_every_file_that_whats_here_names_exists_and_is_told_of_once() -> None:
    folder, told = "", []
    for line in (ROOT / "docs" / "whats_here.md").read_text().splitlines():
        if line.startswith("## "):
            folder = line[3:] if line.endswith("/") else ""
            assert (ROOT / folder).is_dir(), f"there is no folder {folder}"
        elif line.startswith("- "):
            named = line.split(": ", 1)[0] if folder else line
            told += [folder + name for name in re.findall(r"`([\w./-]+(?:\.\w+|/|Makefile|run))`", named)]
    assert len(told) > len(FILES)
    assert [name for name in told if not (ROOT / name).exists() and name not in MADE_BY_RUNS] == []
    assert len(told) == len(set(told))


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_links_lead_somewhere_and_lines_of_text_are_short(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        assert fenced or len(line) <= 120 or line.startswith(("|", "- `")), line


def test_every_failpoint_is_told_of() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    assert re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE) == list(POINTS)
