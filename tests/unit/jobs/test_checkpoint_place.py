"""A checkpoint of `deliver` must be a folder, and a refusal quotes what was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.jobs.query import deliver
from oncebench.jobs.sinks import FilesSink


@pytest.mark.parametrize("given", ["hdfs://nn:8020/cp", "gs://bucket/cp"])
def test_a_uri_is_refused_and_quoted_as_it_was_given(tmp_path: Path, given: str) -> None:
    no_rows: Any = None
    with pytest.raises(RefusedStart, match=f"checkpoint is '{given}', a URI"):
        deliver(no_rows, FilesSink(tmp_path, sink_id="a"), guarantee="exactly-once", checkpoint=given)
