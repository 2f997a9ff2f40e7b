"""The outcomes of the auditor's mutants, file by file, in `proofs/mutants/outcomes.json`.

    {"oncebench/audit/exits.py": {"sha256": "..", "mutants": 129, "survivors": {"..x_name__mutmut_7": "-a\n+b"}}}

Promise: an outcome is that of a whole file. It says which content the file had; `is_done` compares it with today's.
What can go wrong: the tests may have changed since. They only get more, so a killed mutant stays killed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mutmut.mutation.diff_apply import get_diff_for_mutant

_OUTCOMES = Path("proofs/mutants/outcomes.json")


def outcomes(root: Path) -> dict[str, dict[str, Any]]:
    """Returns the stored outcomes by file."""
    path = root / _OUTCOMES
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def is_done(root: Path, file: str) -> bool:
    """Whether the outcome of this file's present content is stored."""
    return outcomes(root).get(file, {}).get("sha256") == _digest(root, file)


def store(root: Path, file: str, mutants: int, survivors: Mapping[str, str]) -> None:
    """Stores the outcome of a file.

    Args:
        root: of the repository.
        file: its path below the root.
        mutants: how many there are.
        survivors: the changed lines of each mutant that no test has noticed, by its name.
    """
    made = {"sha256": _digest(root, file), "mutants": mutants, "survivors": dict(survivors)}
    text = json.dumps({**outcomes(root), file: made}, indent=1, sort_keys=True) + "\n"
    (root / _OUTCOMES).write_text(text)


def changed_lines(mutant: str, file: Path) -> str:
    """Returns the lines that a mutant changes, before and after."""
    diff = get_diff_for_mutant(mutant, path=file).splitlines()
    return "\n".join(each for each in diff if re.match(r"[-+](?![-+])", each))


def _digest(root: Path, file: str) -> str:
    return hashlib.sha256((root / file).read_bytes()).hexdigest()
