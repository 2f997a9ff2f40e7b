"""The user's own Kafka: checked and used, never started and never broken.

Promise: within about 8 s `external` returns a `Kafka` whose brokers this machine can reach, or raises an error with the
cause. Usual causes: nothing listens, the server is not Kafka, it requires a login, or it advertises an address that is
unreachable (the most common cause with containers).
"""

import socket
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.servers.kafka.topics import Kafka

_TIMEOUT_S = 8.0  # enough for a remote cluster with TLS, and short enough for a person at a terminal
_CONNECT_TIMEOUT_S = 3.0  # for one address
_DEFAULT_PORT = 9092


def external(bootstrap_servers: str, client_settings: Mapping[str, str] | None = None) -> Kafka:
    """Returns the Kafka at `bootstrap_servers` (``host:port,...``).

    Raises `MissingEnvironment` if it cannot be reached, and `UserError` if it cannot be used. `client_settings` are
    librdkafka's.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    failures = [_cannot_connect(*_address(text), deadline) for text in bootstrap_servers.split(",")]
    if all(failures):
        raise MissingEnvironment(
            f"no Kafka can be reached at {bootstrap_servers} ({failures[0]}). Check that it runs and that this machine "
            "can reach that address. Without --bootstrap-servers the suite starts its own broker"
        )
    for broker, failure in _brokers(bootstrap_servers, client_settings or {}, deadline).items():
        if failure is not None:
            raise UserError(
                f"Kafka answers at {bootstrap_servers}, but directs clients to {broker}, unreachable from here "
                f"({failure}). Correct its advertised.listeners, or run on a machine that can reach that address"
            )
    return Kafka(bootstrap_servers, client_settings)


def _brokers(servers: str, settings: Mapping[str, str], deadline: float) -> dict[str, str | None]:
    """The addresses that the cluster advertises, each with why it is unreachable, or None."""
    errors: list[KafkaError] = []
    options = {"bootstrap.servers": servers, "log_level": 0, "error_cb": errors.append, **settings}
    try:
        admin = AdminClient(options)
    except KafkaException as error:
        raise UserError(
            f"the client settings for Kafka are invalid: {error.args[0].str()}", exit_code=ExitCode.USAGE
        ) from error
    try:
        found = admin.list_topics(timeout=max(1.0, deadline - time.monotonic())).brokers.values()
    except KafkaException as error:
        admin.poll(0)  # calls error_cb
        reason = (errors[-1] if errors else error.args[0]).str()
        raise UserError(
            f"the server at {servers} does not answer like Kafka ({reason}). "
            "Check that it is Kafka, and whether it requires TLS or a login"
        ) from error
    return {f"{b.host}:{b.port}": _cannot_connect(b.host, b.port, time.monotonic() + _CONNECT_TIMEOUT_S) for b in found}


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        host, port = port, str(_DEFAULT_PORT)
    if not host or not port.isdecimal():
        raise UserError(f"{text!r} is not an address of the form host:port", exit_code=ExitCode.USAGE)
    return host.strip("[]"), int(port)


def _cannot_connect(host: str, port: int, deadline: float) -> str | None:
    """Why no server accepts connections at this address; None if one does."""
    timeout_s = min(_CONNECT_TIMEOUT_S, max(0.1, deadline - time.monotonic()))
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return None
    except (OSError, OverflowError) as error:
        return f"{host}:{port}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
