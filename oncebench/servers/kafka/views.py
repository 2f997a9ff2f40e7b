"""What one broker itself reports about the partitions of its cluster.

Kafka's clients send a metadata request to any broker that they know. While brokers cannot reach each other, their
answers differ, so this module sends the request to the broker that was named.

Failure modes: no answer in time gives None, so does a broker that does not listen.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from oncebench.processes.ports import LOOPBACK

_VERSION = 7  # the first with leader epochs, and older than the flexible format
_LENGTH_BYTES, _CORRELATION_BYTES = 4, 4


@dataclass(frozen=True)
class Seen:
    """One partition, as a broker sees it.

    Attributes:
        leader: the number of the broker that leads; -1 without a leader.
        epoch: counts the leaders of the partition.
        in_sync: whether every replica is in sync.
    """

    leader: int
    epoch: int
    in_sync: bool


View = Mapping[tuple[str, int], Seen]


def view(port: int, timeout_s: float) -> View | None:
    """Every partition of every topic, by topic and number, as the broker at this port sees it."""
    request = MetadataRequest(version=_VERSION, topics=MetadataRequest.ALL_TOPICS, allow_auto_topic_creation=False)
    request.with_header(correlation_id=1, client_id="oncebench")
    try:
        with socket.create_connection((LOOPBACK, port), timeout_s) as server:
            server.settimeout(timeout_s)
            server.sendall(request.encode(version=_VERSION, header=True, framed=True))
            length = int.from_bytes(_exactly(server, _LENGTH_BYTES))
            body = _exactly(server, length)[_CORRELATION_BYTES:]
    except (OSError, EOFError):
        return None
    found = MetadataResponse.decode(body, version=_VERSION)
    return {
        (topic.name, each.partition_index): Seen(
            each.leader_id, each.leader_epoch, set(each.isr_nodes) == set(each.replica_nodes)
        )
        for topic in found.topics
        for each in topic.partitions
    }


def _exactly(server: socket.socket, count: int) -> bytes:
    """Reads so many bytes. Raises EOFError if the broker closes the connection before."""
    read = b""
    while len(read) < count:
        if not (piece := server.recv(count - len(read))):
            raise EOFError
        read += piece
    return read
