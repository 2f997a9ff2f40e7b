"""Runs one cell with Kafka Streams as the engine: `python -m peers.kafka_streams`."""

from __future__ import annotations

from oncebench.program import run_program
from peers.command import Peer, command
from peers.kafka_streams.engine import PROGRAM, kafka_streams
from peers.kafka_streams.settings import GUARANTEES, TRANSACTION_TIMEOUT_MS, VARIANTS, check

KAFKA_STREAMS = Peer(
    name="kafka_streams",
    title="Kafka Streams",
    engine=kafka_streams,
    guarantees=tuple(GUARANTEES),
    variants=VARIANTS,
    default_variant="streams-rocksdb-100ms",
    transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    program=PROGRAM,
    check=check,
)
main = command(KAFKA_STREAMS)

if __name__ == "__main__":
    run_program(f"peers.{KAFKA_STREAMS.name}", main)
