"""Makes Kafka admin clients that pause before they reconnect to a broker.

The fault: a request for one broker (the leader of a partition, the controller) waits until that broker is connected.
Each change of the connection looks the broker up again, and each look-up connects at once: librdkafka clears its
`reconnect.backoff.ms` (RD_KAFKA_OP_CONNECT in rdkafka_broker.c). A broker that is away refuses within a millisecond.
So the client makes hundreds to thousands of connections a second until the request times out, which takes up to a third
of a core.

The remedy is a connection to every broker, which librdkafka makes by itself, with its backoff. A look-up then only
waits. Producers and consumers wait with the backoff in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

_SETTINGS = {
    "enable.sparse.connections": False,
    # The default of 10 s would be half of what most requests may take. A broker that is back is found within a second.
    "reconnect.backoff.max.ms": 1_000,
}


def admin_client(client: Mapping[str, Any]) -> AdminClient:
    """Returns an admin client that waits for a broker that is away.

    Other admin clients reconnect without a pause (see the module).

    Args:
        client: librdkafka settings of the cluster. They take precedence.

    Raises:
        KafkaException: librdkafka refuses a setting.
    """
    return AdminClient({**_SETTINGS, **client})
