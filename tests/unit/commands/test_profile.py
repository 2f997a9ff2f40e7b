"""`oncebench profile` refuses what cannot be profiled, and starts nothing."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import profile
from oncebench.errors import UserError

CELL = ("profile", "--sink", "kafka", "--guarantee", "exactly-once")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--duration", "12"), "a load of 12 s is too short: --warmup and --for take 13 s"),
        (("--duration", "30", "--for", "25"), "too short"),
        (("--sessions", "20"), "too short"),
        (("--rate", "max"), "--rate max has no steady batches"),
        (("--master", "spark://host:7077"), "only a pipeline in one JVM can be profiled"),
        (("--for", "0"), "0 is not in the range"),
        (("--fault", "after-commit:kill"), "No such option"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_profiled_is_refused(
    words: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "run_one", lambda *_, **__: pytest.fail("a run was started"))
    done = CliRunner().invoke(cli, (*CELL, *words))
    if isinstance(done.exception, UserError):
        assert (done.exception.exit_code, expected in str(done.exception)) == (2, True), done.exception
    else:
        assert (done.exit_code, expected in done.output) == (2, True), done.output
