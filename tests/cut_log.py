"""Cuts the log of a partition, as an unclean leader election does."""

from __future__ import annotations

from oncebench.servers.kafka.broker import KafkaBroker


def cut_in_half(broker: KafkaBroker, topic: str, partition: int) -> None:
    """Kills the broker, takes away half of the log of a partition, and starts the broker again."""
    broker.kill()
    (segment,) = (broker.data / f"{topic}-{partition}").glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    broker.restart()
