"""Every tool has a docstring with its command and duration.

A long run outlives its reader.
"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tools import known_slowdown

TOOLS = sorted(path for path in (ROOT / "tools").glob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_docstring_has_command_and_duration(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"python -m tools.{path.stem}" in text or f"python tools/{path.name}" in text
    assert "Takes " in text


@pytest.mark.parametrize("name", [path.stem for path in TOOLS if path.stem != "hand_check"])
def test_tool_can_be_imported(name: str) -> None:
    if name == "detectable_change":
        pytest.importorskip("asv", reason="needs an extra")
    importlib.import_module(f"tools.{name}")  # hand_check is a script: it runs when imported


# `plain_count` uses no code of the library, and its caller reads its lines.
LONG_RUNS = sorted(
    path.stem
    for path in (ROOT / "tools" / "long_runs").glob("*.py")
    if "__main__" in path.read_text() and path.stem != "plain_count"
)


@pytest.mark.parametrize("name", LONG_RUNS)
def test_a_long_run_outlives_the_reader_of_its_output(name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", f"tools.long_runs.{name}", "--help"]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # argparse ignores the errors of an unbuffered write
    try:
        done = subprocess.run(
            command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, env=buffered, text=True, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_known_slowdown_finds_the_code_that_it_changes() -> None:
    sink = (ROOT / known_slowdown.SINK).read_text()
    assert [sink.count(text) for text, _ in (known_slowdown.SLOWER, known_slowdown.DUPLICATING)] == [1, 1]
