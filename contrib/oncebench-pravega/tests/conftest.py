"""Fixtures of the Pravega sink's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oncebench_pravega import reader, writers
from oncebench_pravega import sink as pravega
from oncebench_pravega.controller import VARIABLE
from pravega_fakes import Made, Store


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.close()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, store: Store) -> Callable[..., Made]:
    """Replaces every controller by a simulated one."""

    def used(**answers: Any) -> Made:
        made = Made(store, **answers)
        for module in (pravega, reader, writers):
            monkeypatch.setattr(module, "Controller", lambda address: made)
        monkeypatch.setattr(writers, "_controllers", {})
        monkeypatch.setattr(writers, "_homes", {})
        monkeypatch.setattr(writers, "_stores", {})
        monkeypatch.setattr(pravega, "COMMIT_LIMIT_S", 0.2)
        monkeypatch.setattr(writers, "READY_LIMIT_S", 60.0)
        monkeypatch.setattr(writers, "READY_PAUSE_S", 0.01)
        monkeypatch.setenv(VARIABLE, made.address)
        return made

    return used
