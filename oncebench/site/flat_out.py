"""The tables of `oncebench batches --events` as data: what each guarantee costs flat out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncebench.report.comparisons.paired import machine_of
from oncebench.report.tables.batch_series import FOLDER, BatchSeries
from oncebench.report.tables.batches import WHOLE, whole_rows
from oncebench.site.answer.prices import whole


def as_json(all_series: Sequence[BatchSeries]) -> list[dict[str, Any]]:
    """A table per series, the newest first; rows begin with sink, guarantee and variant."""
    return [
        {
            "machine": machine_of({"environment": series.about["environment"]}),
            "commit": series.about["environment"]["commit"],
            "command": series.about["command"],
            "file": f"{FOLDER}/{series.about['series']}.jsonl",
            "headings": list(WHOLE[3:]),
            "rows": [list(row) for row in whole_rows(series.lines)],
        }
        for series in reversed(whole(all_series))
    ]
