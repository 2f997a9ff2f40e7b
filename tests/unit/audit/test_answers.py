"""A run of a workload that this version does not know is not judged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from oncebench.audit.python.workloads.answers import answer_of
from oncebench.record import RecordError


def test_a_workload_of_another_version_is_named_with_those_of_this_one() -> None:
    record = SimpleNamespace(cell={"cell": {"workload": "joins"}})
    with pytest.raises(RecordError) as refused:
        answer_of(record)  # type: ignore[arg-type]
    assert str(refused.value) == (
        "the run is of the workload 'joins', and this version has the right answers of sessions, windows, records. "
        "Judge the run with the version that made it"
    )
