"""Somebody else's Kafka: reached and looked at, never started, never broken.

Promise: within about 8 s `external` has either a `Kafka` whose brokers this machine can really talk to, or an error
that says which of the usual things is wrong: nobody listens, it is not Kafka, it wants a login, or it tells clients an
address that leads nowhere (the most common one with containers).
"""

import socket
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.servers.kafka.topics import Kafka

_TIMEOUT_S = 8.0  # long enough for a far cluster with TLS, short enough to wait for in front of a terminal
_CONNECT_TIMEOUT_S = 3.0  # for one address
_DEFAULT_PORT = 9092


def external(bootstrap_servers: str, client_settings: Mapping[str, str] | None = None) -> Kafka:
    """A handle on the Kafka at `bootstrap_servers` (``host:port,...``); `client_settings` are librdkafka's.

    Raises `MissingEnvironment` if it can't be reached and `UserError` if what is there will not do.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    failures = [_cannot_connect(*_address(text), deadline) for text in bootstrap_servers.split(",")]
    if all(failures):
        raise MissingEnvironment(
            f"no Kafka can be reached at {bootstrap_servers} ({failures[0]}). Is it running, and is that its address "
            "as seen from this machine? Without --bootstrap-servers the suite starts a broker of its own"
        )
    for broker, failure in _brokers(bootstrap_servers, client_settings or {}, deadline).items():
        if failure is not None:
            raise UserError(
                f"Kafka answers at {bootstrap_servers}, but tells clients to go to {broker}, which can't be reached "
                f"from here ({failure}): mend its advertised.listeners, or run where that address leads somewhere"
            )
    return Kafka(bootstrap_servers, client_settings)


def _brokers(servers: str, settings: Mapping[str, str], deadline: float) -> dict[str, str | None]:
    """The addresses that the cluster tells its clients, each with why it can't be reached (None if it can)."""
    complaints: list[KafkaError] = []
    options = {"bootstrap.servers": servers, "log_level": 0, "error_cb": complaints.append, **settings}
    try:
        admin = AdminClient(options)
    except KafkaException as error:
        raise UserError(
            f"the client settings for Kafka don't work: {error.args[0].str()}", exit_code=ExitCode.USAGE
        ) from error
    try:
        found = admin.list_topics(timeout=max(1.0, deadline - time.monotonic())).brokers.values()
    except KafkaException as error:
        admin.poll(0)  # delivers the complaints
        reason = (complaints[-1] if complaints else error.args[0]).str()
        raise UserError(
            f"something listens at {servers} but does not answer as Kafka does ({reason}). "
            "Is it Kafka, and does it want TLS or a login that was not given?"
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
    """Why nobody answers at this address, or None if somebody does."""
    timeout_s = min(_CONNECT_TIMEOUT_S, max(0.1, deadline - time.monotonic()))
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return None
    except (OSError, OverflowError) as error:
        return f"{host}:{port}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
