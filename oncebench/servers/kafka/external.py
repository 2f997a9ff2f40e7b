"""The user's own Kafka: checked and used, never started and never broken.

Promise: within about 8 s `external` returns a `Kafka` whose brokers this machine can reach, or raises an error with the
cause. Usual causes: nothing listens, the server is not Kafka, it requires a login, a certificate or a password is
wrong, or it advertises an address that is unreachable (the most common cause with containers).
"""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.connection import addresses, is_secured, why_no_tls, why_refused
from oncebench.servers.kafka.topics import Kafka

_TIMEOUT_S = 8.0  # enough for a remote cluster with TLS, and short enough for a person at a terminal
_CONNECT_TIMEOUT_S = 3.0  # for one address


def external(access: KafkaAccess) -> Kafka:
    """Returns the user's Kafka.

    Raises `MissingEnvironment` if it cannot be reached, and `UserError` if it cannot be used.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    servers = access.bootstrap_servers
    try:
        places = addresses(servers)
    except ValueError as error:
        raise UserError(f"{str(error)!r} is not an address of the form host:port", exit_code=ExitCode.USAGE) from None
    with ThreadPoolExecutor(len(places)) as pool:  # an address that swallows packets must not delay the others
        failures = list(pool.map(_cannot_connect, *zip(*places, strict=True), repeat(deadline)))
    if all(failures):
        raise MissingEnvironment(
            f"no Kafka can be reached at {servers} ({failures[0]}). Check that it runs and that this machine "
            "can reach that address"
        )
    live = access.at(",".join(text for text, failure in zip(servers.split(","), failures, strict=True) if not failure))
    if is_secured(live.client) and (refusal := why_refused(live.client, deadline - time.monotonic())):
        raise UserError(f"Kafka at {servers}: {refusal.why}")
    for broker, failure in _brokers(live, deadline).items():
        if failure is not None:
            raise UserError(
                f"Kafka answers at {servers}, but directs clients to {broker}, unreachable from here "
                f"({failure}). Correct its advertised.listeners, or run on a machine that can reach that address"
            )
    return Kafka(access)


def _brokers(access: KafkaAccess, deadline: float) -> dict[str, str | None]:
    """The addresses that the cluster advertises, each with why it is unreachable, or None."""
    errors: list[KafkaError] = []
    try:
        admin = AdminClient({"log_level": 0, "error_cb": errors.append, **access.client})
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
            f"the server at {access.bootstrap_servers} does not answer like Kafka ({reason}). "
            "Check that it is Kafka. If it requires TLS or a login, give its settings with --kafka-conf"
        ) from error
    return {f"{b.host}:{b.port}": _unusable(access, b.host, b.port) for b in found}


def _unusable(access: KafkaAccess, host: str, port: int) -> str | None:
    """Why clients cannot use a broker at this address; None if they can."""
    failure = _cannot_connect(host, port, time.monotonic() + _CONNECT_TIMEOUT_S)
    if failure is None and access.client.get("security.protocol", "").endswith("SSL"):
        refusal = why_no_tls(access.client, host, port)
        return None if refusal is None else refusal.why
    return failure


def _cannot_connect(host: str, port: int, deadline: float) -> str | None:
    """Why no server accepts connections at this address; None if one does."""
    timeout_s = min(_CONNECT_TIMEOUT_S, max(0.1, deadline - time.monotonic()))
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return None
    except (OSError, OverflowError) as error:
        return f"{host}:{port}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
