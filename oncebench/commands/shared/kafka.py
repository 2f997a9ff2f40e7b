"""The options for the user's own Kafka.

They are its addresses, a file of settings, and single settings.

Promise: no secret is taken from the command line, which every user of the machine can read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from oncebench.commands.scenario_files.lines import refused_by_file
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.forms import weaknesses
from oncebench.kafka_access.refused import AccessRefused, is_secret
from oncebench.redaction import has_secret

F = TypeVar("F", bound=Callable[..., Any])
# The names of the options' parameters.
KAFKA_PARAMETERS = ("bootstrap_servers", "kafka_conf", "kafka_set")


def kafka_options(servers_help: str = "Your own Kafka; without it, a broker is started.") -> Callable[[F], F]:
    """The options, which reach the command as one parameter `kafka: KafkaAccess | None`."""

    def decorate(command: F) -> F:
        @wraps(command)
        def with_access(
            *arguments: Any,
            bootstrap_servers: str | None,
            kafka_conf: str | None,
            kafka_set: Sequence[tuple[str, str]],
            **options: Any,
        ) -> Any:
            with refused_by_file(click.get_current_context()):
                kafka = access_of(bootstrap_servers, kafka_conf, kafka_set)
            return command(*arguments, kafka=kafka, **options)

        decorated: Any = with_access
        for option in (
            click.option("--bootstrap-servers", metavar="HOST:PORT,..", help=servers_help),
            click.option("--kafka-conf", type=click.Path(dir_okay=False), metavar="FILE",
                         help="Settings of your Kafka with TLS or a login: a file of Java properties, as Kafka's own "
                         "tools take it."),
            click.option("--kafka-set", multiple=True, metavar="NAME=VALUE", callback=_pairs,
                         help="One more setting of your Kafka; not a secret. Can be given several times."),
        )[::-1]:  # fmt: skip
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def access_of(servers: str | None, conf: str | None, settings: Sequence[tuple[str, str]]) -> KafkaAccess | None:
    """Returns the user's Kafka; None if no option names one.

    Raises:
        UserError: a setting cannot be used (exit code 2).
    """
    if servers is not None and not servers.strip():
        raise UserError(
            "--bootstrap-servers is empty. Give the addresses as host:port,..., or leave the option out",
            exit_code=ExitCode.USAGE,
        )
    if not servers and not conf:
        if settings:
            raise UserError(
                "--kafka-set has no effect here. It is a setting of your own Kafka: give --bootstrap-servers too",
                exit_code=ExitCode.USAGE,
            )
        return None
    for name, value in settings:
        if is_secret(name) or has_secret(value):
            raise UserError(
                f"--kafka-set {name}: it holds a secret, and every user of this machine can read a command line. Write "
                "it into the file of --kafka-conf. There it may name an environment variable: ${env:NAME}",
                exit_code=ExitCode.USAGE,
            )
    if conf and Path(conf).exists() and not Path(conf).is_file():
        raise UserError(
            f"--kafka-conf {conf} is no regular file, and several processes of a run read it. Write the settings into "
            "a file that only you can read, and a password into an environment variable: ${env:NAME}",
            exit_code=ExitCode.USAGE,
        )
    try:
        access = KafkaAccess(servers or "", conf or "", dict(settings))
    except AccessRefused as refused:
        raise UserError(str(refused), exit_code=ExitCode.USAGE) from None
    if access.unused:
        click.echo(f"{conf}: these settings have no effect here: {', '.join(access.unused)}", err=True)
    for weakness in weaknesses(access.client):
        click.echo(f"INSECURE: {weakness}", err=True)
    return access


def required(kafka: KafkaAccess | None) -> KafkaAccess:
    """Returns the user's Kafka, for a command that needs one.

    Raises:
        UserError: no option names it (exit code 2).
    """
    if kafka is None:
        raise UserError("the address of Kafka is missing. Give it as --bootstrap-servers", exit_code=ExitCode.USAGE)
    return kafka


def _pairs(_context: click.Context, _option: click.Parameter, given: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not name or not equals:  # the text is not repeated: it may be a secret
            raise click.BadParameter("it must have the form NAME=VALUE")
    return [(name.strip(), value) for name, _, value in pairs]
