"""The options for the user's own Kafka take no secret, and reach a command as one value."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from oncebench.commands.shared.kafka import kafka_options, required
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.access import KafkaAccess
from tests.unit.kafka_access.files import access, login

SECRET = "canary-7f3a"


@click.command()
@kafka_options()
@click.option("--other")
def command(kafka: KafkaAccess | None, other: str | None) -> None:
    click.echo(f"{kafka} {None if kafka is None else dict(kafka.client)} {other}")


def called(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


def refusal(*words: str) -> str:
    done = called(*words)
    assert isinstance(done.exception, UserError)
    assert done.exception.exit_code == ExitCode.USAGE
    return str(done.exception)


def test_without_an_option_there_is_no_kafka_of_the_users() -> None:
    assert called("--other", "x").output == "None None x\n"
    with pytest.raises(UserError, match="Give it as --bootstrap-servers"):
        required(None)


def test_addresses_file_and_settings_reach_the_command(tmp_path: Path) -> None:
    conf = access(tmp_path, {**login("PLAIN", "alice", SECRET), "linger.ms": "5"}).conf
    words = ("--bootstrap-servers", "b:1", "--kafka-conf", conf, "--kafka-set", "client.id=a=b", "--kafka-set",
             "ssl.endpoint.identification.algorithm=")  # fmt: skip
    done = called(*words)
    assert "'client.id': 'a=b'" in done.output
    assert "'ssl.endpoint.identification.algorithm': 'none'" in done.output
    assert f"{conf}: these settings have no effect here: linger.ms" in done.output
    assert "INSECURE: the host names of Kafka's brokers are not checked" in done.output


@pytest.mark.parametrize(
    "name", ["sasl.jaas.config", "ssl.key.password", "sasl.oauthbearer.client.secret", "SASL.PASSWORD"]
)
def test_a_secret_on_the_command_line_is_refused(name: str) -> None:
    said = refusal("--bootstrap-servers", "b:1", "--kafka-set", f"{name}={SECRET}")
    assert "Write it into the file of --kafka-conf" in said
    assert SECRET not in said


def test_a_secret_inside_a_value_on_the_command_line_is_refused() -> None:
    url = f"sasl.oauthbearer.token.endpoint.url=https://me:{SECRET}@h/"
    said = refusal("--bootstrap-servers", "b:1", "--kafka-set", url)
    assert said.startswith("--kafka-set sasl.oauthbearer.token.endpoint.url: it holds a secret")
    assert SECRET not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kafka-set", "client.id=me"), "--kafka-set has no effect here"),
        (("--bootstrap-servers", ""), "--bootstrap-servers is empty"),
        (("--bootstrap-servers", "b:1", "--kafka-set", "acks=0"), "acks cannot be set here: an acknowledgement"),
        (("--bootstrap-servers", "b:1", "--kafka-conf", "none.properties"), "none.properties cannot be read"),
        (("--bootstrap-servers", "b:1", "--kafka-set", "security.protocol=SASL_SSL"), "sasl.mechanism GSSAPI"),
    ],
)
def test_a_wrong_option_is_a_usage_error(words: tuple[str, ...], message: str) -> None:
    assert message in refusal(*words)


def test_a_file_that_can_be_read_only_once_is_refused(tmp_path: Path) -> None:
    """The generator, the pipeline and the observer read it too; a pipe would give them nothing, or never end."""
    os.mkfifo(tmp_path / "pipe")
    said = refusal("--bootstrap-servers", "b:1", "--kafka-conf", str(tmp_path / "pipe"))
    assert said.startswith(f"--kafka-conf {tmp_path / 'pipe'} is no regular file")


def test_a_setting_without_a_value_is_refused_and_not_repeated() -> None:
    done = called("--bootstrap-servers", "b:1", "--kafka-set", SECRET)
    assert done.exit_code == ExitCode.USAGE
    assert "it must have the form NAME=VALUE" in done.output
    assert SECRET not in done.output
