"""The tables of `oncebench batches --events` as data: what each guarantee costs flat out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncebench.report.tables.batch_series import FOLDER, BatchSeries
from oncebench.report.tables.batches import WHOLE, whole_rows
from oncebench.site.answer.prices import whole

# Places of the columns in the table: a phone shows the first columns only, so these are the ones to compare first.
_NAMES, _ORDER = (0, 1, 2), (6, 8, 3, 4, 5, 7)


def as_json(all_series: Sequence[BatchSeries]) -> list[dict[str, Any]]:
    """A table per size of batch, machine and version, the newest first.

    Rows begin with sink, guarantee and variant.
    """
    return [
        {
            "machine": series.place,
            "commit": series.about["environment"]["commit"] or "unknown",
            "files": [[f"{FOLDER}/{about['series']}.jsonl", about["command"]] for about in series.abouts],
            "headings": [WHOLE[at] for at in _ORDER],
            "rows": [[row[at] for at in (*_NAMES, *_ORDER)] for row in whole_rows(series.lines)],
        }
        for series in reversed(whole(all_series))
    ]
