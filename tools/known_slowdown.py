"""Checks that asv finds a known slowdown and a known defect, and nothing else.

    python -m tools.known_slowdown [ROUNDS]

Takes about 40 minutes with 7 rounds on two cores. Use a quiet machine.

A clone gets two commits. In the first, a two-phase commit to Kafka takes 10 ms longer. The second undoes this delay,
but forgets which batches are committed, so a replay of the idempotent variant duplicates its batch. (Two-phase reads
its journal and duplicates nothing.) asv measures both exactly-once cells of Kafka at all three commits, each in asv's
own environment. It then compares them. Each variant is the control of the other: idempotent does not have the slow
commit, and two-phase does not duplicate. So these figures must not change.

The tool prints the output of `asv compare`, and for the second commit only its promises. That commit runs one round,
which is too little to compare costs.

Failure mode: asv measures one commit after the other, so other load on the machine counts against one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from oncebench.commands.bench import this_machine

ROOT = Path(__file__).resolve().parents[1]
SINK = Path("oncebench/sinks/kafka/sink.py")
SLOW_MS = 10
# The fewest rounds with which asv's test can find a change. asv applies a Mann-Whitney test as soon as its one-sided p
# can fall below 0.002, but the test is two-sided. For 6 against 6 the smallest p is 2/924 = 0.0022, so six rounds never
# differ; for 7 against 7 it is 2/3432 = 0.0006. With fewer than six rounds asv compares intervals.
ROUNDS = 7
# The sink's code, and its replacement.
SLOWER = (
    '        assert self._coordinator is not None, "start() comes first"\n        by_partition = ',
    f'        assert self._coordinator is not None, "start() comes first"\n        time.sleep({SLOW_MS / 1000})\n'
    "        by_partition = ",
)
DUPLICATING = ("        return self._marks\n", "        return {}\n")
AUTHOR = ("-c", "user.name=known-slowdown", "-c", "user.email=known-slowdown@localhost")


def changed(clone: Path, change: tuple[str, str], message: str) -> str:
    """Commits the original sink with one change; returns the commit's hash."""
    text = (ROOT / SINK).read_text()
    if text.count(change[0]) != 1:
        raise SystemExit(f"{SINK} must hold this text exactly once. Adapt the change in this tool:\n{change[0]}")
    (clone / SINK).write_text(text.replace(*change))
    run(clone, "git", *AUTHOR, "commit", "--quiet", "--all", "--message", message)
    return run(clone, "git", "rev-parse", "HEAD")


def run(clone: Path, *command: str) -> str:
    """Runs a command in the clone and returns its output.

    Raises:
        SystemExit: the command failed.
    """
    done = subprocess.run(command, cwd=clone, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}")
    return done.stdout.strip()


def measure(clone: Path, commits: str, rounds: int) -> None:
    """Measures commits of the clone with asv: exactly-once into Kafka."""
    selection = ["--sink", "kafka", "--only", "exactly-once", "--bench", "cells"]
    words = ["bench", *selection, "--rounds", str(rounds), "--commits", commits]
    run(clone, sys.executable, "-c", "from oncebench.cli import main; main()", *words)


def print_changes(clone: Path, title: str, before: str, after: str, kind: str) -> None:
    """Prints how many benchmarks of one kind asv compared, and those that changed."""
    words = (sys.executable, "-m", "asv", "compare", "--machine", this_machine()["--machine"], before, after)
    _, compared = of_kind(run(clone, *words), kind)
    print(f"\n{title}: {len(compared)} figures of {kind} compared. Changed:\n")
    head, changes = of_kind(run(clone, *words, "--only-changed"), kind)
    print("\n".join([*head, *changes] if changes else ["none"]), flush=True)


def of_kind(printed: str, kind: str) -> tuple[list[str], list[str]]:
    """The head of a table of `asv compare`, and its rows of one kind of benchmark."""
    table = [line for line in printed.splitlines() if line.startswith("|")]
    return table[:2], [line for line in table[2:] if line.rstrip("| ").split("|")[-1].strip().startswith(kind)]


def main(rounds: int) -> None:
    """Creates the clone and its commits, measures and prints; then removes the clone."""
    with tempfile.TemporaryDirectory(prefix="known-slowdown-") as temporary:
        clone = Path(temporary) / "clone"
        run(ROOT, "git", "clone", "--quiet", os.fspath(ROOT), os.fspath(clone))
        run(clone, "git", "checkout", "--quiet", "-B", "main")
        base = run(clone, "git", "rev-parse", "HEAD")
        slow = changed(clone, SLOWER, f"The commit takes {SLOW_MS} ms longer")
        duplicating = changed(clone, DUPLICATING, "A batch forgets what it has committed")
        measure(clone, f"{base}~1..{slow}", rounds)
        measure(clone, f"{slow}..{duplicating}", 1)
        print_changes(clone, f"{SLOW_MS} ms more in the two-phase commit of Kafka", base, slow, "cells.")
        print_changes(clone, "a sink that duplicates in a replay, idempotent", base, duplicating, "cells.Promise")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
