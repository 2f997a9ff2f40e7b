"""`oncebench bench` measures HEAD in every kind of clone, and names what a clone lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oncebench.commands.bench import SETTINGS
from tests import ROOT

pytest.importorskip("asv")
pytestmark = pytest.mark.integration

BENCHMARK = "def time_micro():\n    pass\n\n\ntime_micro.repeat, time_micro.number, time_micro.warmup_time = 2, 1, 0\n"
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A project with the real settings and one small benchmark.

    It has the branches `main`, and `topic` with a commit of its own.
    """
    folder = tmp_path / "origin"
    (folder / "benchmarks").mkdir(parents=True)
    shutil.copy(ROOT / SETTINGS, folder)
    (folder / "benchmarks" / "__init__.py").touch()
    (folder / "benchmarks" / "micro.py").write_text(BENCHMARK)
    (folder / ".gitignore").write_text("/.asv\n/results\n__pycache__\n")
    git(folder, "init", "-q", "-b", "main")
    for number in range(3):
        (folder / "version").write_text(str(number))
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"commit {number}")
    git(folder, "checkout", "-qb", "topic")
    git(folder, "commit", "-q", "--allow-empty", "-m", "on topic")
    git(folder, "checkout", "-q", "main")
    return folder


def clone(origin: Path, *words: str) -> Path:
    git(origin.parent, "clone", "-q", *words, origin.as_uri(), "clone")
    return origin.parent / "clone"


def bench(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code and everything that was printed."""
    command = "import sys; from oncebench.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "HOME": f"{folder.parent}"}
    done = subprocess.run(
        [sys.executable, "-c", command, "bench", "--quick", "--bench", "micro", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def stored(folder: Path) -> list[str]:
    """The commits that have figures."""
    return sorted({path.name.split("-")[0] for path in (folder / "results" / "asv").glob("*/*-*.json")})


def head(folder: Path) -> str:
    return git(folder, "rev-parse", "--short=8", "HEAD")


def test_head_is_measured_in_a_clone_of_one_branch(origin: Path) -> None:
    folder = clone(origin, "-b", "topic", "--single-branch")
    code, said = bench(folder)
    assert code == 0, said
    assert stored(folder) == [head(folder)]


@pytest.mark.slow
def test_head_is_measured_and_on_the_pages_without_any_branch(origin: Path) -> None:
    folder = clone(origin)
    git(folder, "checkout", "-q", "--detach")
    git(folder, "branch", "-D", "main")
    code, said = bench(folder, "--pages")
    assert code == 0, said
    assert stored(folder) == [head(folder)]
    assert head(folder) in (folder / ".asv" / "html" / "index.json").read_text()
    assert "not on the pages" not in said


@pytest.mark.slow
def test_pages_name_the_commits_that_they_lack(origin: Path) -> None:
    folder = clone(origin)
    git(folder, "checkout", "-q", "topic")
    beside = head(folder)
    assert bench(folder)[0] == 0
    git(folder, "checkout", "-q", "main")
    code, said = bench(folder, "--pages")
    assert code == 0, said
    assert stored(folder) == sorted([beside, head(folder)])
    assert f"not on the pages, because they are not in the history of HEAD: {beside}." in said


@pytest.mark.slow
def test_a_shallow_clone_measures_head_and_has_pages(origin: Path) -> None:
    folder = clone(origin, "--depth", "1")
    code, said = bench(folder, "--pages")
    assert code == 0, said
    assert stored(folder) == [head(folder)]


@pytest.mark.parametrize(
    ("words", "commits", "message"),
    [
        (
            ("--depth", "1"),
            "HEAD~1..HEAD",
            "This clone is shallow: it lacks older commits. Run `git fetch --unshallow`",
        ),
        ((), "there-is-none..HEAD", "Give commits that `git rev-list` knows here"),
        ((), "HEAD..HEAD", "there are no commits in HEAD..HEAD"),
    ],
)
@pytest.mark.slow
def test_commits_that_a_clone_lacks_are_reported_in_words(
    origin: Path, words: tuple[str, ...], commits: str, message: str
) -> None:
    folder = clone(origin, *words)
    code, said = bench(folder, "--commits", commits)
    assert (code, stored(folder)) == (2, [])
    assert message in said
    assert "Traceback" not in said
