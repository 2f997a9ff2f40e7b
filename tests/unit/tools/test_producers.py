"""tools/producers.py: fills the topic or fails, and deletes produced topics."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ROOT

SCRIPT = ROOT / "tools" / "producers.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The script's globals with a fake producer: 40,000 records, 8 transactions, 4 s."""
    defined = runpy.run_path(str(SCRIPT))
    found: dict[str, Any] = defined["main"].__globals__
    found["topics"] = []

    def pretend(_kafka: Any, topic: str, _settings: Any) -> Any:
        found["topics"].append(topic)
        return found["Produced"](found.get("per_try", 40_000), 8, 4.0)

    found["produced"] = pretend
    return found


def test_fill_repeats_until_the_topic_holds_enough(script: dict[str, Any]) -> None:
    script["fill"](None, "reads")
    assert script["topics"] == ["reads"] * 5


def test_fill_fails_on_a_machine_that_is_too_slow(script: dict[str, Any]) -> None:
    script["per_try"] = 10
    with pytest.raises(SystemExit, match=r"150 records were sent in 60 s, but the measurement reads 200,000"):
        script["fill"](None, "reads")


def test_produced_topics_are_deleted_and_transaction_times_kept(script: dict[str, Any]) -> None:
    deleted: list[str] = []

    def delete_topics(names: list[str]) -> dict[str, Any]:
        deleted.extend(names)
        return {name: SimpleNamespace(result=lambda _s: None) for name in names}

    kafka = SimpleNamespace(
        fresh_topic=lambda *_: f"speed-{len(deleted)}", admin=lambda: SimpleNamespace(delete_topics=delete_topics)
    )
    intervals_ms: list[float] = []
    assert [script["produced_per_s"](kafka, {}, intervals_ms) for _ in range(2)] == [10_000.0, 10_000.0]
    assert deleted == script["topics"] == ["speed-0", "speed-1"]
    assert intervals_ms == [500.0, 500.0]
