"""A requeue learns the limits of its targets before it sends anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.delivery.copies.letters import Selection
from oncebench.delivery.copies.requeue import Requeue
from oncebench.delivery.errors import ReadError
from oncebench.delivery.topics import settings

# Nobody listens there.
NOBODY: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}


def test_a_limit_that_kafka_does_not_return_in_time_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "LIMIT_S", 0.2)
    call = Requeue.__new__(Requeue)  # its consumer would wait for the quarantine topic first
    call._client, call._selection, call._targets = NOBODY, Selection("bad", "bad.requeue"), {}
    letter = SimpleNamespace(reason="late", outcome="", source_topic="orders")
    call._letters = SimpleNamespace(read=lambda: [letter], partitions=lambda *_: 1)  # type: ignore[assignment]
    with pytest.raises(ReadError, match="topic orders"):
        call.look()
