"""Limits of the cluster and of the output topic, read once at the start."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.topics.settings import broker_setting

# Kafka's default of transactional.id.expiration.ms, for a user who may not read the brokers' settings.
EXPIRES_S = 7 * 86_400.0
# Advice for a batch that takes longer than its transactions may.
RAISE_LIMIT = (
    "If the brokers' limit, transaction.max.timeout.ms, is not enough, raise that too: it is in server.properties and "
    "takes a restart of each broker."
)


@dataclass(frozen=True)
class Limits:
    """Limits that the writers keep.

    Attributes:
        record_bytes: of a record of the output topic (`max.message.bytes`); None: unknown.
        transaction_ms: the longest transaction time-out that the broker allows; None: unknown.
        expires_s: after so many seconds without use, the brokers forget a transactional id.
    """

    record_bytes: int | None = None
    transaction_ms: int | None = None
    expires_s: float = EXPIRES_S


UNKNOWN = Limits()


def transaction_limits(admin: AdminClient, record_bytes: int | None, timeout_ms: int) -> Limits:
    """Returns the limits for transactions with this time-out.

    Raises:
        RefusedStart: the broker does not allow such a long time-out.
    """
    allowed = broker_setting(admin, "transaction.max.timeout.ms")
    expires = broker_setting(admin, "transactional.id.expiration.ms")
    if allowed is not None and timeout_ms > int(allowed):
        raise RefusedStart(
            f"transaction_timeout_ms is {timeout_ms}, which is more than the broker allows "
            f"(transaction.max.timeout.ms = {allowed}). Lower transaction_timeout_ms, or raise the limit in "
            "server.properties and restart the brokers. Then start again."
        )
    return Limits(
        record_bytes,
        None if allowed is None else int(allowed),
        EXPIRES_S if expires is None else int(expires) / 1000,
    )
