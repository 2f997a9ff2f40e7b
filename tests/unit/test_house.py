"""The rules of the house: imports go one way, files stay small, every file is told of in docs/whats_here.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "loadgen": {"loadgen"},
    "pipeline": {"pipeline"},
    "oncebench": {"oncebench", "loadgen", "pipeline"},
    "benchmarks": {"benchmarks", "oncebench"},
}
FILES = sorted(path for room in MAY_IMPORT for path in (ROOT / room).rglob("*.py"))
MOST_LINES = 400


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
