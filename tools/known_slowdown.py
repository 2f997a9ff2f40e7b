"""What asv makes of known changes: `python -m tools.known_slowdown [ROUNDS]`, some 40 minutes, quiet machine.

A clone gets two commits: one whose two-phase commit to Kafka takes 10 ms longer, and one that has that taken back but
forgets what a batch has already committed, so that a replay of the idempotent variant doubles it (two-phase looks into
its journal and doubles nothing). asv measures Kafka's two exactly-once cells at the commit they stand on and at both,
each installed in asv's own environment, and compares: idempotent shares the sink's file but not the slow commit, and
two-phase not the doubling, so that each is there to stay as it was. Promise: what is printed is what `asv compare`
says, of the second all of its promises and no costs: it is run for one round, of which a cost says nothing. What can go
wrong: asv measures commit after commit, so other load on the machine is counted to whichever met it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from oncebench.commands.bench import MACHINE

ROOT = Path(__file__).resolve().parents[1]
SINK = Path("oncebench/sinks/kafka/sink.py")
SLOW_MS = 10
# The fewest with which asv compares by statistics and can find something. It asks a Mann-Whitney test as soon as that
# could say less than 0.002 by its one-sided p, but then asks it two-sided: of 6 against 6, one above all of the other,
# that is 2/924 = 0.0022, so with six rounds nothing ever differs; of 7 against 7 it is 2/3432 = 0.0006. Fewer than six
# are compared by intervals.
ROUNDS = 7
# What stands in the sink's code, and what stands there instead.
SLOWER = (
    '        assert self._coordinator is not None, "start() comes first"\n        ended = ',
    f'        assert self._coordinator is not None, "start() comes first"\n        time.sleep({SLOW_MS / 1000})\n'
    "        ended = ",
)
DOUBLING = ("        return self._marks\n", "        return {}\n")
AUTHOR = ("-c", "user.name=known-slowdown", "-c", "user.email=known-slowdown@localhost")


def changed(clone: Path, change: tuple[str, str], says: str) -> str:
    """Commits the sink with one change, nothing else of what an earlier one made; returns the commit's name."""
    text = (ROOT / SINK).read_text()
    if text.count(change[0]) != 1:
        raise SystemExit(f"{SINK} no longer has what is to be changed exactly once:\n{change[0]}")
    (clone / SINK).write_text(text.replace(*change))
    run(clone, "git", *AUTHOR, "commit", "--quiet", "--all", "--message", says)
    return run(clone, "git", "rev-parse", "HEAD")


def run(clone: Path, *command: str) -> str:
    """What a command prints in the clone.

    Raises:
        SystemExit: it failed.
    """
    done = subprocess.run(command, cwd=clone, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}")
    return done.stdout.strip()


def measure(clone: Path, commits: str, rounds: int) -> None:
    """Has asv measure commits of the clone: exactly-once into Kafka, in an environment that asv makes."""
    which = ["--sink", "kafka", "--only", "exactly-once", "--bench", "cells"]
    words = ["bench", *which, "--rounds", str(rounds), "--commits", commits]
    run(clone, sys.executable, "-c", "from oncebench.cli import main; main()", *words)


def tell(clone: Path, title: str, before: str, after: str, kind: str) -> None:
    """Prints what asv finds changed among the benchmarks of one kind, and how many it compared."""
    words = (sys.executable, "-m", "asv", "compare", "--machine", MACHINE, before, after)
    _, compared = of_kind(run(clone, *words), kind)
    print(f"\n{title}: {len(compared)} figures of {kind} compared, changed are\n")
    head, changes = of_kind(run(clone, *words, "--only-changed"), kind)
    print("\n".join([*head, *changes] if changes else ["none"]), flush=True)


def of_kind(printed: str, kind: str) -> tuple[list[str], list[str]]:
    """The head of a table of `asv compare`, and its rows of benchmarks whose name begins so."""
    table = [line for line in printed.splitlines() if line.startswith("|")]
    return table[:2], [line for line in table[2:] if line.rstrip("| ").split("|")[-1].strip().startswith(kind)]


def main(rounds: int) -> None:
    """Makes the clone and its commits, measures, prints, and leaves nothing."""
    with tempfile.TemporaryDirectory(prefix="known-slowdown-") as temporary:
        clone = Path(temporary) / "clone"
        run(ROOT, "git", "clone", "--quiet", os.fspath(ROOT), os.fspath(clone))
        run(clone, "git", "checkout", "--quiet", "-B", "main")
        base = run(clone, "git", "rev-parse", "HEAD")
        slow = changed(clone, SLOWER, f"The commit takes {SLOW_MS} ms longer")
        doubling = changed(clone, DOUBLING, "A batch forgets what it has committed")
        measure(clone, f"{base}~1..{slow}", rounds)
        measure(clone, f"{slow}..{doubling}", 1)
        tell(clone, f"{SLOW_MS} ms more in the two-phase commit of Kafka", base, slow, "cells.")
        tell(clone, "a sink that doubles in a replay, idempotent", base, doubling, "cells.Promise")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
