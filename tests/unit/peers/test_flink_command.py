"""The command of the peer: its options are checked before anything starts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from oncebench.errors import UserError
from peers.flink.__main__ import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--variant", "two-phase"), "is not flink-STATE-INTERVALms"),
        (("--outage", "5"), "--outage has no effect here"),
        (("--rate", "never"), "rate"),
    ],
)
def test_a_wrong_option_is_refused_before_a_start(words: tuple[str, ...], message: str) -> None:
    found = CliRunner().invoke(main, ["--guarantee", "exactly-once", *words])
    assert isinstance(found.exception, UserError) and message in str(found.exception)


def test_the_help_names_the_options_of_a_cell() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    assert all(option in text for option in ("--variant", "--random-kills", "--outage", "--transaction-timeout"))
    assert "--state-store" not in text  # a setting of Spark's pipeline
