"""Every tool has a docstring with its command and duration, and plots are written to docs/plots."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import ROOT

TOOLS = sorted(path for path in (ROOT / "tools").glob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_docstring_has_command_and_duration(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"python -m tools.{path.stem}" in text or f"python tools/{path.name}" in text
    assert "Takes " in text


def test_plots_are_written_to_docs() -> None:
    plots = pytest.importorskip("tools.plots", reason="needs the extra docs")
    assert plots.PLOTS == ROOT / "docs" / "plots"
    assert plots.RUNS == ROOT / "results" / "runs"
