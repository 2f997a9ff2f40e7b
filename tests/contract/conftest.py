"""Leaves the sinks of installed packages to `make test-slow`.

Some of these sinks start a server of their own for minutes.
"""

from __future__ import annotations

import pytest

from oncebench.sinks.registry import PACKAGES


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        case = getattr(item, "callspec", None)
        if case is not None and any(case.id.startswith(f"{sink}-") for sink in PACKAGES):
            item.add_marker(pytest.mark.slow)
