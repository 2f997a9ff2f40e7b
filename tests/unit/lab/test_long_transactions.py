"""Brokers that a run starts take every transaction time-out that `oncebench plan` prints."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncebench.commands.shared.options import MAX_OUTAGE_S
from oncebench.lab import lab


class _Broker(ExitStack):
    ports: Mapping[str, int] = {lab.LINK: 1}

    def stop(self) -> None:
        """Has nothing to stop."""


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_longest_outage_of_a_plan_fits(brokers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, str] = {}

    def started(*_: Any, settings: Mapping[str, str], **__: Any) -> _Broker:
        found.update(settings)
        return _Broker()

    monkeypatch.setattr(lab, "start_kafka", started)
    monkeypatch.setattr(lab, "start_cluster", started)
    java: Any = SimpleNamespace()
    with lab.own_brokers(tmp_path, java, brokers):
        assert int(found.get("transaction.max.timeout.ms", 900_000)) > 2 * MAX_OUTAGE_S * 1000
