"""tools/producers.py: the topic that is read is filled or given up, and a produced one is gone before the next."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ROOT

SCRIPT = ROOT / "tools" / "producers.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the script defines; its producer sends nothing, and tells 40,000 records in eight transactions of 4 s."""
    defined = runpy.run_path(str(SCRIPT))
    found: dict[str, Any] = defined["main"].__globals__
    found["topics"] = []

    def pretend(_kafka: Any, topic: str, _settings: Any) -> Any:
        found["topics"].append(topic)
        return found["Produced"](found.get("per_try", 40_000), 8, 4.0)

    found["produced"] = pretend
    return found


def test_a_slow_machine_fills_the_same_topic_until_it_holds_enough(script: dict[str, Any]) -> None:
    script["fill"](None, "reads")
    assert script["topics"] == ["reads"] * 5


def test_a_machine_that_is_too_slow_to_fill_it_is_told_so(script: dict[str, Any]) -> None:
    script["per_try"] = 10
    with pytest.raises(SystemExit, match=r"150 records were sent in 60 s, and 200,000 are to be read"):
        script["fill"](None, "reads")


def test_what_was_produced_is_deleted_and_the_time_of_its_transactions_kept(script: dict[str, Any]) -> None:
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
