"""The command of the Kafka Streams peer: its options are checked before anything starts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from oncebench.errors import UserError
from peers.kafka_streams.__main__ import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--variant", "flink-rocksdb-200ms"), "is not streams-STATE-INTERVALms"),
        (("--variant", "streams-memory-20000ms"), "--transaction-timeout 10000 is shorter than the 20000 ms"),
        (("--outage", "5"), "--outage has no effect here"),
    ],
)
def test_a_wrong_option_is_refused_before_a_start(words: tuple[str, ...], message: str) -> None:
    found = CliRunner().invoke(main, ["--guarantee", "exactly-once", *words])
    assert isinstance(found.exception, UserError) and message in str(found.exception)


def test_at_most_once_is_refused_with_what_streams_has() -> None:
    found = CliRunner().invoke(main, ["--guarantee", "at-most-once"])
    assert found.exit_code == 2 and "'at-least-once', 'exactly-once'" in found.output


def test_the_help_names_the_peer_and_the_options_of_a_cell() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    assert all(option in text for option in ("--variant", "--random-kills", "--outage", "--transaction-timeout"))
    assert "python -m peers.kafka_streams" in text and "Flink" not in text
