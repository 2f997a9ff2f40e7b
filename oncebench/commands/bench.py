"""`oncebench bench`: asv with the flags that it needs here.

Promise: figures are kept under the commit that they are of: a tree with changes is refused, unless nothing is kept
(`--dry-run`). What can go wrong: asv is not installed (exit code 5).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click
from click.core import ParameterSource

from oncebench.bench import REPORTS, names
from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.report.results import LOCAL
from oncebench.scenario.supports import require_sinks

SETTINGS = "asv.conf.json"
# asv's machine name is the host's, which says nothing to readers and changes with every container.
MACHINE = "oncebench"


@click.command(short_help="asv: cost and promises over commits.")
@click.option("--sink", "sinks", multiple=True, help="Only these; may be given several times [default: every sink].")
@click.option("--only", metavar="TEXT", default="", help="Only cells that have every word of TEXT: `kafka two-phase`.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Of the healthy runs, from 7 on of all: then asv compares by statistics. Of fewer it sees large changes only, "
    "of 6 none, and takes chance for a change where there is one run.",
)
@click.option("--quick", is_flag=True, help="One round of the Kafka sink (or of --sink).")
@click.option("--bench", metavar="REGEX", help="Only benchmarks whose name fits, as asv's -b: `micro`, `cells`.")
@click.option("--commits", metavar="RANGE", help="Of older commits, each in an environment of its own: main~3..main.")
@click.option("--dry-run", is_flag=True, help="Keep no figures.")
@click.option("--pages", is_flag=True, help="Then make asv's pages, in .asv/html.")
def bench(
    sinks: tuple[str, ...],
    only: str,
    rounds: int,
    quick: bool,
    bench: str | None,
    commits: str | None,
    dry_run: bool,
    pages: bool,
) -> None:
    """Run the asv benchmarks of this commit (or of --commits) and keep their figures in results/asv.

    `asv compare` and `asv publish` read them. The reports of the runs stay in results/local/runs. A full run took 47
    and 63 minutes on two machines of two cores; one that takes more than twice its time is ended, and nothing of it is
    kept.
    """
    require_sinks(sinks)
    given = click.get_current_context().get_parameter_source("rounds")
    if quick and given is not ParameterSource.DEFAULT:
        raise UserError("--quick is one round: give it or --rounds", exit_code=ExitCode.USAGE)
    if not Path(SETTINGS).exists():
        raise UserError(f"there is no {SETTINGS} here; run this in a clone of the repository", exit_code=ExitCode.USAGE)
    if find_spec("asv") is None:
        raise MissingEnvironment("asv is not installed; `pip install -e '.[bench]'` does it")
    if not dry_run and _changed():
        raise UserError(
            "there are changes that are in no commit, so their figures would be kept under a commit that has not got "
            "them; commit them, or give --dry-run",
            exit_code=ExitCode.USAGE,
        )
    wanted = sinks or (("kafka",) if quick and not only else ())
    cells = names(wanted, only)
    if not cells:
        raise UserError(
            f"no cell that can be run here has all of {only!r}; see `oncebench list`", exit_code=ExitCode.USAGE
        )
    environment = {
        **os.environ,
        "ONCEBENCH_BENCH_SINKS": " ".join(wanted),
        "ONCEBENCH_BENCH_ONLY": only,
        "ONCEBENCH_BENCH_ROUNDS": str(1 if quick else rounds),
        # asv works in folders of its own.
        REPORTS: os.fspath(LOCAL.resolve()),
    }
    before = _reports()
    _asv(["machine", "--yes", "--machine", MACHINE], environment)
    _asv(arguments(chosen(bench, cells if wanted or only else ()), commits, dry_run), environment)
    for file in sorted(_reports() - before):
        click.echo(f"reports {file}", err=True)
    if pages:
        _asv(["publish"], environment)


def _reports() -> set[Path]:
    return set((LOCAL / "runs").glob("bench-*.jsonl"))


def chosen(bench: str | None, cells: Sequence[str]) -> str | None:
    """A pattern for what asv is to run, by name and cell; of all cells `bench` as it is. Of cells that skip themselves
    it would start a process for each metric, and put nothing in the place of figures that it has kept."""
    if not cells:
        return bench
    named = "|".join(map(re.escape, cells))
    return rf"^(?=.*?(?:{bench or ''}))(?:micro\.|cells\..*\('(?:{named})')"


def arguments(bench: str | None, commits: str | None, dry_run: bool) -> list[str]:
    """Those of `asv run`: of this environment and commit, or of others in environments that asv makes."""
    which = ["--bench", bench] if bench else []
    keep = ["--dry-run"] if dry_run else []
    if commits is not None:
        return ["run", "--machine", MACHINE, "--show-stderr", "--record-samples", *which, *keep, commits]
    # Without the hash asv would keep nothing of an environment that it did not make itself.
    here = [f"--environment=existing:{sys.executable}", "--set-commit-hash", _commit()]
    return ["run", "--machine", MACHINE, "--show-stderr", "--record-samples", *here, *which, *keep]


def _changed() -> bool:
    return bool(_git("status", "--porcelain"))


def _commit() -> str:
    return _git("rev-parse", "HEAD")


def _git(*words: str) -> str:
    git = shutil.which("git")
    if git is None:
        raise MissingEnvironment("git is not installed, and asv keeps figures by commit")
    done = subprocess.run([git, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"git {' '.join(words)}: {done.stderr.strip()}; asv needs a clone with its history")
    return done.stdout.strip()


def _asv(words: Sequence[str], environment: dict[str, str]) -> None:
    code = subprocess.run([sys.executable, "-m", "asv", *words], env=environment, check=False).returncode
    if code:
        sys.exit(code if code > 0 else ExitCode.ERROR)
