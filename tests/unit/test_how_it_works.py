"""Every function that docs/how_it_works.md names exists, and every room has its line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests import ROOT

PAGE = (ROOT / "docs" / "how_it_works.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py): ([\w.]+)`", PAGE)))
ROOMS = sorted(
    path.parent for folder in ("oncebench/*", "loadgen", "pipeline", "benchmarks", "proofs")
    for path in ROOT.glob(f"{folder}/__init__.py")
)  # fmt: skip


def defined_in(path: Path) -> set[str]:
    """Functions and classes of a module, and methods as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return names


@pytest.mark.parametrize(("module", "name"), NAMED, ids=str)
def test_a_named_function_exists(module: str, name: str) -> None:
    assert name in defined_in(ROOT / module)


def test_the_walk_names_functions() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_every_room_has_a_line(room: Path) -> None:
    assert f"| `{room.relative_to(ROOT)}/` |" in PAGE
