"""`oncebench bench`: runs asv with the flags that it needs here.

Promise: figures are stored under the commit that they measure. A working tree with changes is refused, unless nothing
is stored (`--dry-run`). HEAD is measured in every clone, whatever its branches. Failure modes: asv is not installed
(exit code 5); a clone lacks commits that --commits names (exit code 2); a benchmark failed (exit code 1).
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click
from click.core import ParameterSource

from oncebench.bench import REPORTS, names
from oncebench.commands.shared.writable import refuse_unwritable_results
from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.measure import exit_code
from oncebench.processes import foreground
from oncebench.report.comparisons.sustained import backlog_in_latency, growth
from oncebench.report.configuration import configuration_of
from oncebench.report.environment import environment
from oncebench.report.report import read_reports
from oncebench.report.results import LOCAL
from oncebench.report.schema import Report
from oncebench.scenario.supports import require_sinks

SETTINGS = "asv.conf.json"
ASV_RESULTS = Path("results/asv")  # `results_dir` of the settings
# What asv takes for --commits besides a range of git.
ASV_RANGES = ("NEW", "ALL", "TAGS", "EXISTING")
HASHFILE = "HASHFILE:"  # then a file with a commit per line, or - for stdin


@click.command()
@click.option(
    "--sink", "sinks", multiple=True, help="Sink to measure; repeat for several [default: every installed sink]."
)
@click.option(
    "--only",
    metavar="TEXT",
    default="",
    help="Measure only cells whose name contains every word of TEXT: `kafka two-phase`.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Rounds per healthy cell; not with --quick. Use 7 or more: asv then applies its statistical test, and killed "
    "and flat-out cells are repeated too. With fewer, asv also reports changes by chance in those cells. With 6, it "
    "detects no change in the healthy cells.",
)
@click.option("--quick", is_flag=True, help="Run one round, of the Kafka sink unless --sink or --only is given.")
@click.option(
    "--bench",
    metavar="REGEX",
    help="Run only benchmarks whose name matches, as asv -b does: `micro`, `cells`, "
    "`speed`. `speed` runs only with this option.",
)
@click.option("--commits", metavar="RANGE", help="Measure these commits, each in its own environment: main~3..main.")
@click.option("--dry-run", is_flag=True, help="Do not store figures.")
@click.option("--pages", is_flag=True, help="Write asv's web pages to .asv/html at the end.")
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
    """Run the asv benchmarks of this commit and store their figures in results/asv.

    --commits measures other commits. `asv compare` and `asv publish` read the figures. The reports of the runs are in
    results/local/runs. A full run took 47 and 63 minutes on two machines with two cores. A run that takes more than
    twice the expected time is stopped, and nothing of it is stored.

    \b
    Example:
      oncebench bench --quick --dry-run
    """
    require_sinks(sinks)
    given = click.get_current_context().get_parameter_source("rounds")
    if quick and given is not ParameterSource.DEFAULT:
        raise UserError("--quick means one round. Give --quick or --rounds, not both", exit_code=ExitCode.USAGE)
    if not Path(SETTINGS).exists():
        raise UserError(
            f"there is no {SETTINGS} here. Run this command in a clone of the repository", exit_code=ExitCode.USAGE
        )
    if find_spec("asv") is None:
        raise MissingEnvironment("asv is not installed. Run `pip install -e '.[bench]'`")
    if not dry_run and _has_changes():
        raise UserError(
            "the working tree has uncommitted changes, so the figures would be stored under a commit without them. "
            "Commit the changes, or give --dry-run",
            exit_code=ExitCode.USAGE,
        )
    if commits is not None:
        _refuse_missing(commits)
    _refuse_pattern(bench)
    wanted = sinks or (("kafka",) if quick and not only else ())
    cells = names(wanted, only)
    if not cells:
        raise UserError(
            f"no cell that can run here has all words of {only!r}; see `oncebench list`", exit_code=ExitCode.USAGE
        )
    refuse_unwritable_results(LOCAL)
    variables = {
        **os.environ,
        "ONCEBENCH_BENCH_SINKS": " ".join(wanted),
        "ONCEBENCH_BENCH_ONLY": only,
        "ONCEBENCH_BENCH_ROUNDS": str(1 if quick else rounds),
        # asv changes the working directory, so this path is absolute.
        REPORTS: os.fspath(LOCAL.resolve()),
    }
    before = _reports()
    machine = this_machine()
    _asv(["machine", "--yes", *(word for fact in machine.items() for word in fact)], variables)
    pattern = benchmark_pattern(bench, cells if wanted or only else ())
    _asv(arguments(pattern, machine["--machine"], commits, dry_run), variables)
    made = sorted(_reports() - before)
    for file in made:
        click.echo(f"reports {file}", err=True)
    if not dry_run:
        click.echo(f"compare commits with `asv compare --machine {machine['--machine']} COMMIT COMMIT`", err=True)
    if pages:
        _asv(["publish"], variables)
        _report_left_out()
    if commits is None:  # the reports of another commit may be of another schema
        _exit([report for file in made for report in read_reports(file)])


def _exit(reports: Sequence[Report]) -> NoReturn:
    """Prints each run that was not kept or fell behind, and ends the command.

    The exit code is that of all runs.
    """
    for report in reports:
        if backlog_in_latency(report):
            click.echo(
                f"{' '.join(configuration_of(report))}: the pipeline fell behind its load ({growth(report)}), so the "
                "latencies of this run include the backlog. Run the benchmarks again on an idle machine",
                err=True,
            )
        if report["verdict"] != "kept":
            click.echo(f"{' '.join(configuration_of(report))}: {report['verdict']}\n  {report['reproduce']}", err=True)
    sys.exit(exit_code(reports))


def _reports() -> set[Path]:
    return set((LOCAL / "runs").glob("bench-*.jsonl"))


def benchmark_pattern(bench: str | None, cells: Sequence[str]) -> str:
    """The pattern of benchmark names for asv: `bench`, limited to these cells if any.

    Cells that skip themselves are excluded here. Otherwise asv would start a process for each of their metrics, and
    replace stored figures by nothing. The benchmarks `speed` run only if `bench` is given and matches
    them, because they need runs of their own.
    """
    named = "|".join(map(re.escape, cells))
    of_cells = rf"cells\..*\('(?:{named})'" if cells else r"cells\."
    speed = r"speed\.|" if bench else ""
    return rf"^(?=.*?(?:{bench or ''}))(?:micro\.|{speed}{of_cells})"


def this_machine() -> dict[str, str]:
    """The options of `asv machine` for this machine; its name there is `--machine`.

    asv compares commits within one machine, and machines of one kind differ by a factor. The name is that of processor
    and cores, as in every other comparison. asv's default is the host name, which changes with every container, and its
    processor lacks family and model. asv stores only values that differ from its own, so `--cpu` includes the cores.
    """
    facts = environment()
    processor = f"{facts['cpu'] or platform.machine()}, {facts['cores']} cores"
    name = re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-")
    return {"--machine": name, "--cpu": processor, "--ram": f"{facts['memory_bytes'] / 1e9:.0f} GB"}


def arguments(pattern: str, machine: str, commits: str | None, dry_run: bool) -> list[str]:
    """The arguments of `asv run`: for this commit, or for `commits` in asv's environments."""
    which = ["--bench", pattern]
    keep = ["--dry-run"] if dry_run else []
    if commits is not None:
        return ["run", "--machine", machine, "--show-stderr", "--record-samples", *which, *keep, commits]
    # Without the hash asv stores no figures of an environment that it did not create.
    here = [f"--environment=existing:{sys.executable}", "--set-commit-hash", _commit()]
    return ["run", "--machine", machine, "--show-stderr", "--record-samples", *here, *which, *keep]


def _has_changes() -> bool:
    return bool(_git("status", "--porcelain"))


def _commit() -> str:
    return _git("rev-parse", "HEAD")


def _refuse_pattern(bench: str | None) -> None:
    """Refuses a pattern that is no regular expression within asv's pattern.

    Raises:
        UserError: it is none (exit code 2).
    """
    try:
        re.compile(benchmark_pattern(bench, ()))
    except re.error as error:
        raise UserError(
            f"--bench {bench!r} is no regular expression: {error.msg}. Give one such as 'micro|speed'",
            exit_code=ExitCode.USAGE,
        ) from None


def _refuse_missing(commits: str) -> None:
    """Refuses commits that this clone lacks.

    asv would end with a traceback of its own, or leave them out.

    Raises:
        UserError: git does not know the commits, or there are none (exit code 2).
    """
    if commits in ASV_RANGES:
        return
    if commits.startswith(HASHFILE):
        _refuse_missing_lines(Path(commits.removeprefix(HASHFILE)))
        return
    try:
        words = shlex.split(commits)
    except ValueError as error:
        raise UserError(f"--commits {commits!r}: {error}. Give a range such as main~3..main",
                        exit_code=ExitCode.USAGE) from None  # fmt: skip
    found = _run_git("rev-list", "--first-parent", *words, "--") if words else None
    if found is not None and found.returncode:
        reason = found.stderr.strip().splitlines()[-1]
        raise UserError(f"--commits {commits}: {reason}. {_how_to_get_commits()}", exit_code=ExitCode.USAGE)
    if found is None or not found.stdout.strip():
        raise UserError(
            f"there are no commits in {commits or repr(commits)}; main~3..main has three", exit_code=ExitCode.USAGE
        )


def _refuse_missing_lines(file: Path) -> None:
    """Refuses a file of commits that is missing or empty.

    It must not have a commit that this clone lacks either.
    """
    if str(file) == "-":
        return
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise UserError(
            f"--commits {HASHFILE}{file} cannot be read: {getattr(error, 'strerror', None) or error}. Give a text "
            "file with a commit per line",
            exit_code=ExitCode.USAGE,
        ) from None
    named = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    if not named:
        raise UserError(f"--commits: {file} names no commit. Write a commit per line", exit_code=ExitCode.USAGE)
    for number, commit in named.items():
        if _run_git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}").returncode:
            raise UserError(
                f"--commits: {file}:{number}: git knows no commit {commit!r} here. {_how_to_get_commits()}",
                exit_code=ExitCode.USAGE,
            )


def _how_to_get_commits() -> str:
    if _git("rev-parse", "--is-shallow-repository") == "true":
        return (
            "This clone is shallow: it lacks older commits. Run `git fetch --unshallow`, or measure HEAD without "
            "--commits"
        )
    return "Give commits that `git rev-list` knows here, or fetch them first"


def _report_left_out() -> None:
    """Names commits with stored figures that the pages lack, because they show HEAD's history."""
    stored = {path.name.split("-")[0] for path in ASV_RESULTS.glob("*/*-*.json")}
    shown = tuple(_git("rev-list", "--first-parent", "HEAD").split())
    left_out = sorted(each for each in stored if not any(commit.startswith(each) for commit in shown))
    if left_out:
        click.echo(
            f"figures not on the pages, because they are not in the history of HEAD: {', '.join(left_out)}. To see "
            "one, check it out and run `asv publish`",
            err=True,
        )


def _git(*words: str) -> str:
    done = _run_git(*words)
    if done.returncode:
        raise UserError(f"git {' '.join(words)}: {done.stderr.strip()}. asv needs a clone with its history")
    return done.stdout.strip()


def _run_git(*words: str) -> subprocess.CompletedProcess[str]:
    git = shutil.which("git")
    if git is None:
        raise MissingEnvironment("git is not installed. asv stores figures by commit")
    return subprocess.run([git, *words], capture_output=True, text=True, check=False)


def _asv(words: Sequence[str], variables: dict[str, str]) -> None:
    """Runs asv. Its exit code 2 means that a benchmark failed, and here a wrong command line."""
    if foreground.run([sys.executable, "-m", "asv", *words], variables):
        sys.exit(ExitCode.ERROR)
