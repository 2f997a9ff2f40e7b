"""Kafka's answers reach the ledger, also an answer without an offset."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Message

from loadgen.ledger import Ledger
from loadgen.producer import _Answers


def test_an_acknowledgement_without_an_offset_counts(tmp_path: Path) -> None:
    """A broker that gets an event twice may have forgotten where the first one is."""
    ledger = Ledger.create(tmp_path, 100)
    answers = _Answers(ledger, lambda: 77)
    answered = answers.callback()
    for row, known in ((3, {"offset": 40}), (4, {}), (5, {"offset": 42})):
        answered(row, None, Message(topic="t", partition=1, **known))
    answers.enter()
    assert answers.acknowledged == 3
    assert ledger.offset[2:7].tolist() == [-1, 40, -1, 42, -1]
    assert ledger.partition[2:7].tolist() == [-1, 1, 1, 1, -1]
    assert ledger.acked_us[2:7].tolist() == [0, 77, 77, 77, 0]
