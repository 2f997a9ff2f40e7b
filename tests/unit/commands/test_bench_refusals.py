"""`oncebench bench` refuses a pattern or commits that asv would answer with a traceback, or leave out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import bench as command
from oncebench.errors import ExitCode, UserError
from tests.unit.commands.test_bench import clone

__all__ = ["clone"]  # a fixture


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--bench", "["], "--bench '[' is no regular expression: unterminated character set. Give one such as "),
        (["--bench", "(?i)micro"], "--bench '(?i)micro' is no regular expression: global flags not at the start"),
        (["--commits", "HEAD~1..'"], '--commits "HEAD~1..\'": No closing quotation. Give a range such as '),
        (["--commits", ""], "there are no commits in ''; main~3..main has three"),
        (["--commits", "NEWER"], "--commits NEWER: fatal: bad revision 'NEWER'. Give commits that"),
        (["--commits", "HASHFILE:none"], "--commits HASHFILE:none cannot be read: No such file or directory. Give a "),
        (["--commits", "HASHFILE:."], "--commits HASHFILE:. cannot be read: Is a directory. Give a text file"),
        (["--commits", "HASHFILE:bytes"], "--commits HASHFILE:bytes cannot be read: 'utf-8' codec can't"),
        (["--commits", "HASHFILE:empty"], "--commits: empty names no commit. Write a commit per line"),
        (["--commits", "HASHFILE:wrong"], "--commits: wrong:3: git knows no commit 'nobody' here. Give commits that"),
    ],
)
def test_a_mistake_is_refused_before_asv_starts(
    words: list[str], why: str, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_asv", lambda *_: pytest.fail("asv was started"))
    (clone / "bytes").write_bytes(b"\xff")
    (clone / "empty").write_text("\n \n")
    (clone / "wrong").write_text("HEAD\n\nnobody\n")
    refused = CliRunner().invoke(cli, ["bench", "--dry-run", *words]).exception
    assert isinstance(refused, UserError)
    assert refused.exit_code == ExitCode.USAGE
    assert str(refused).startswith(why)


@pytest.mark.parametrize("commits", ["HEAD^!", "HASHFILE:right", "HASHFILE:-", "NEW", "ALL", "TAGS", "EXISTING"])
def test_commits_that_asv_takes_reach_asv(commits: str, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(command, "_asv", lambda words, _: ran.append(list(words)))
    (clone / "right").write_text("HEAD\n\n")
    done = CliRunner().invoke(cli, ["bench", "--dry-run", "--commits", commits])
    assert (done.exit_code, ran[-1][-1]) == (0, commits), done.exception
