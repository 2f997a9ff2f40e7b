"""What a mutation run came to: reads what mutmut keeps beside the mutated files, prints the table of the docs.

Promise: every mutant that was made is counted once, under what became of it; one that was not run is counted as such,
so a run that was broken off does not look better than it is. What can go wrong: there was no run; then no file follows
the head. `--survivors` prints the changed lines of each survivor as well.
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
NOTICED = ("killed", "timeout")  # an endless loop is noticed too
JUDGE = Path("oncebench/audit")


def results(path: Path) -> dict[str, str]:
    """What became of each mutant of a file, by the mutant's name."""
    kept = MUTATED / f"{path}.meta"
    codes = json.loads(kept.read_text())["exit_code_by_key"] if kept.exists() else {}
    return {name: status_by_exit_code[code] for name, code in codes.items()}


def line(name: str, found: Counter[str]) -> str:
    """A row of the table; whatever is neither noticed nor survived is told after it."""
    made, noticed = found.total(), sum(found[word] for word in NOTICED)
    other = {word: count for word, count in found.items() if word not in (*NOTICED, "survived")}
    score = f"{noticed / made:.1%}" if made else "-"
    told = "".join(f" {count} {word};" for word, count in other.items())
    return f"| {name} | {made} | {noticed} | {found['survived']} | {score} |{told}"


def changed(name: str, path: Path) -> str:
    """The lines that a mutant changes."""
    diff = get_diff_for_mutant(name, path=path).splitlines()
    return "\n".join(each for each in diff if re.match(r"[-+](?![-+])", each))


def main(arguments: list[str]) -> None:
    """Print the table, and the survivors if they are asked for."""
    total: Counter[str] = Counter()
    print("| file | mutants | killed | survived | score |\n|---|---|---|---|---|")
    for path in sorted(JUDGE.rglob("*.py")):
        found = results(path)
        total.update(found.values())
        if found:
            print(line(f"`{path.name}`", Counter(found.values())))
    print(line("all", total))
    if "--survivors" in arguments:
        for path in sorted(JUDGE.rglob("*.py")):
            for name in (name for name, word in results(path).items() if word not in NOTICED):
                print(f"\n{name}\n{changed(name, path)}")


if __name__ == "__main__":
    main(sys.argv[1:])
