"""Tests how a test puts its own topics into an example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.example_jobs import with_names

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_reads_the_input_of_its_test_whatever_its_name(path: Path) -> None:
    text = with_names(path.read_text(), "localhost:1", "orders-1ce594", "checked-5c0c", ".config('a', 'b')")
    assert re.findall(r'"subscribe", "(.*?)"', text) == ["orders-1ce594"]
