"""A report names the commit of its figures, and never the commit of another clone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from oncebench.report import environment as under_test
from oncebench.report.environment import commit_of, cpu_model

OWN = Path(under_test.__file__).relative_to(under_test.HOME)


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / OWN).parent.mkdir(parents=True)
    (tmp_path / OWN).write_text("here\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_the_commit_is_marked_dirty_if_a_file_changed(clone: Path) -> None:
    commit_of.cache_clear()
    named = commit_of(clone)
    assert named is not None
    assert git(clone, "rev-parse", "HEAD").startswith(named)
    (clone / OWN).write_text("changed\n")
    assert commit_of(clone) == named  # a series has one commit, from its beginning
    commit_of.cache_clear()
    assert commit_of(clone) == f"{named}-dirty"


def test_a_tag_does_not_replace_the_commit(clone: Path) -> None:
    git(clone, "tag", "--annotate", "v1", "--message", "a tag")
    commit_of.cache_clear()
    assert git(clone, "rev-parse", "HEAD").startswith(commit_of(clone) or "nothing")


def test_a_package_inside_another_clone_has_no_commit(clone: Path) -> None:
    git(clone, "rm", "--quiet", "--cached", str(OWN))
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "not kept")
    commit_of.cache_clear()
    assert commit_of(clone) is None


def test_without_a_clone_there_is_no_commit(tmp_path: Path) -> None:
    commit_of.cache_clear()
    assert commit_of(tmp_path) is None


def test_processors_with_the_same_name_are_distinguished() -> None:
    old = "processor\t: 0\ncpu family\t: 23\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel\t\t: 9\n"
    assert cpu_model(old) == "AMD EPYC (family 23, model 1)"
    assert cpu_model("processor\t: 0\nmodel name\t: ARMv8 Processor rev 4 (v8l)\n") == "ARMv8 Processor rev 4 (v8l)"
    assert cpu_model("processor\t: 0\nBogoMIPS\t: 50.00\n") is None
