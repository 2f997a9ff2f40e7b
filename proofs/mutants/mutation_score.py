"""`python proofs/mutants/mutation_score.py [--survivors]`: prints a table of outcomes.

The outcomes are those of the auditor's mutants.

Promise: a file whose present content was not tried has no figures, so an interrupted run does not look better than it
is. `--survivors` also prints the changed lines of each survivor.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mutation_outcomes import is_done, outcomes

ROOT = Path(__file__).parents[2]
AUDITOR = (Path("oncebench/audit"), Path("oncebench/audit/python"))


def main(arguments: list[str]) -> None:
    """Prints the table, and the survivors on request."""
    found = outcomes(ROOT)
    files = sorted(str(path.relative_to(ROOT)) for folder in AUDITOR for path in (ROOT / folder).rglob("*.py"))
    files = [file for file in files if "audit/sql/" not in file and not file.endswith("__init__.py")]
    done = [file for file in dict.fromkeys(files) if is_done(ROOT, file)]
    print("| file | mutants | killed | survived | killed % |\n|---|---:|---:|---:|---:|")
    for file in dict.fromkeys(files):
        if file in done:
            print(_line(f"`{Path(file).name}`", [file]))
        else:
            print(f"| `{Path(file).name}` | not tried | | | |")
    if done:
        print(_line("all that were tried", done))
    if "--survivors" in arguments:
        for file in done:
            for name, lines in found[file]["survivors"].items():
                print(f"\n{name}\n{lines}")


def _line(name: str, files: list[str]) -> str:
    found = outcomes(ROOT)
    made, alive = (
        sum(count)
        for count in zip(*((found[file]["mutants"], len(found[file]["survivors"])) for file in files), strict=True)
    )
    return f"| {name} | {made:,} | {made - alive:,} | {alive} | {(made - alive) / made:.1%} |"


if __name__ == "__main__":
    main(sys.argv[1:])
