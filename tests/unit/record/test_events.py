"""Every event of timeline.jsonl is in one file, with its meaning.

Stored runs keep the names of their events.
"""

from __future__ import annotations

import ast
from pathlib import Path

from oncebench.record import events
from tests import ROOT

NAMES = {value: name for name, value in vars(events).items() if name.isupper()}
LIST = Path(events.__file__)
OWN = ROOT / "oncebench" / "audit" / "sql"  # the two auditors share no code
FILES = [path for path in (ROOT / "oncebench").rglob("*.py") if path != LIST and not path.is_relative_to(OWN)]


def spelt(path: Path) -> set[str]:
    """The events that a file spells itself: texts with a hyphen, and whatever it notes."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Constant(value=str(text)) if "-" in text and text in NAMES:
                found.add(text)
            case ast.Call(func=ast.Attribute(attr="note"), args=[ast.Constant() | ast.JoinedStr() as event, *_]):
                found.add(ast.unparse(event))
    return found


def test_the_name_of_an_event_is_that_of_its_constant() -> None:
    assert {name.lower().replace("_", "-"): name for name in NAMES.values()} == NAMES


def test_each_event_has_its_meaning() -> None:
    assert [line for line in LIST.read_text().splitlines() if " = " in line and "#" not in line] == []


def test_no_other_file_spells_an_event() -> None:
    assert {str(path.relative_to(ROOT)): own for path in FILES if (own := spelt(path))} == {}
