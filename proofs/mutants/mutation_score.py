"""Reads the result files of a mutation run and prints the table of the docs.

Promise: every mutant is counted once, under its result. A mutant that was not run is counted as such, so an interrupted
run does not look better than it is. `--survivors` also prints the changed lines of each survivor.

What can go wrong: without a run, the table has only its head.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code

MUTATED = Path("mutants")
DETECTED = ("killed", "timeout")  # an endless loop is detected too
AUDITOR = Path("oncebench/audit")


def results(path: Path) -> dict[str, str]:
    """The result of each mutant of a file, by the mutant's name."""
    kept = MUTATED / f"{path}.meta"
    codes = json.loads(kept.read_text())["exit_code_by_key"] if kept.exists() else {}
    return {name: status_by_exit_code[code] for name, code in codes.items()}


def line(name: str, found: Counter[str]) -> str:
    """A row of the table, followed by results that are neither detected nor survived."""
    made, detected = found.total(), sum(found[status] for status in DETECTED)
    other = {status: count for status, count in found.items() if status not in (*DETECTED, "survived")}
    score = f"{detected / made:.1%}" if made else "-"
    rest = "".join(f" {count} {status};" for status, count in other.items())
    return f"| {name} | {made} | {detected} | {found['survived']} | {score} |{rest}"


def changed(name: str, path: Path) -> str:
    """The lines that a mutant changes."""
    diff = get_diff_for_mutant(name, path=path).splitlines()
    return "\n".join(each for each in diff if re.match(r"[-+](?![-+])", each))


def main(arguments: list[str]) -> None:
    """Prints the table, and the survivors on request."""
    total: Counter[str] = Counter()
    print("| file | mutants | killed | survived | score |\n|---|---|---|---|---|")
    for path in sorted(AUDITOR.rglob("*.py")):
        found = results(path)
        total.update(found.values())
        if found:
            print(line(f"`{path.name}`", Counter(found.values())))
    print(line("all", total))
    if "--survivors" in arguments:
        for path in sorted(AUDITOR.rglob("*.py")):
            for name in (name for name, status in results(path).items() if status not in DETECTED):
                print(f"\n{name}\n{changed(name, path)}")


if __name__ == "__main__":
    main(sys.argv[1:])
