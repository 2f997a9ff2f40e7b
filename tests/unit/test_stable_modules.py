"""No function of the modules that asv calls hides one of their imports."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from oncebench import bench, measure, micro


@pytest.mark.parametrize("module", [bench, measure, micro])
def test_no_local_name_hides_an_import(module: ModuleType) -> None:
    functions = [
        value for _, value in inspect.getmembers(module, inspect.isfunction) if value.__module__ == module.__name__
    ]
    hidden = {name for function in functions for name in function.__code__.co_varnames if name in vars(module)}
    assert functions
    assert not hidden
