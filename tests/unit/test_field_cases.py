"""Every test that docs/field_cases.md names exists, and no cell of its tables is empty."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebench.sinks.registry import PACKAGES, SINKS
from tests import ROOT

PAGE = (ROOT / "docs" / "field_cases.md").read_text()
FILES = sorted(set(re.findall(r"`((?!tests/)[\w/-]+/test_\w+\.py)", PAGE)))
# "`file: test`" in a sentence, and "`file` | `test`" in a table.
NAMED = sorted(set(re.findall(r"`([\w/-]+\.py)(?:: |`(?: \(slow\))? \| `)(test_\w+)`", PAGE)))
KINDS = re.split(r"^### (?=\d+\. )", PAGE, flags=re.MULTILINE)[1:]
# These concern no sink, or the same for all.
WITHOUT_SINKS = {"9"}
# The two formats of files are one sink.
NAMES = {
    name.removesuffix("-jsonl").removesuffix("-parquet")
    for name, kind in SINKS.items()
    if name not in PACKAGES and not kind.certify_only
}


def tables(text: str) -> Iterator[list[list[str]]]:
    """The tables of a text, each as rows of cells, without the line below the heads."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in block.replace("\\|", "/").splitlines()
        ]
        yield [rows[0], *rows[2:]]


def path_of(file: str) -> Path:
    """The path of a file of tests: below `tests/`, or of a package in `contrib/`."""
    return ROOT / file if file.startswith("contrib/") else ROOT / "tests" / file


@pytest.mark.parametrize("file", FILES)
def test_a_named_file_exists(file: str) -> None:
    assert path_of(file).is_file()


@pytest.mark.parametrize(("file", "name"), NAMED, ids=str)
def test_a_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse(path_of(file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_case_has_a_test() -> None:
    cases, tests = list(tables(PAGE))[:2]
    numbers = [row[0].strip("| ") for row in cases[1:]]
    assert len(numbers) == 16
    tested = {number for row in tests[1:] for number in re.findall(r"\b\d+", row[0])}
    assert set(numbers) <= tested


def test_no_cell_is_empty_and_every_row_is_whole() -> None:
    for heads, *rows in tables(PAGE):
        for row in rows:
            assert len(row) == len(heads), row
            assert all(row), row


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.split("\n", 1)[0])
def test_every_sink_has_its_cells_in_each_kind(kind: str) -> None:
    if kind.split(".", 1)[0] in WITHOUT_SINKS:
        return
    (table,) = tables(kind)
    named = {name for row in table[1:] for name in row[0].split(":")[0].split(", ")}
    assert "every sink" in named or named >= NAMES


def test_the_page_has_ten_kinds() -> None:
    assert [kind.split(".", 1)[0] for kind in KINDS] == [str(number) for number in range(1, 11)]
