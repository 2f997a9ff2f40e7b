"""The progress of a run, as its processes write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oncebench.live.status import LOADING
from oncebench.record.numbered import numbered
from oncebench.run.progress import RunProgress


def write(folder: Path, name: str, *lines: dict[str, Any]) -> None:
    with (folder / name).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def batch(end: int, number: int = 1) -> dict[str, Any]:
    return {"kind": "batch", "batch": number, "end_offsets": {"0": end}}


def test_an_attempt_on_an_older_checkpoint_starts_with_its_own_position(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, None)
    write(tmp_path, "progress.jsonl", batch(500), batch(400))
    progress.update()
    assert progress.position == {"0": 500}
    write(tmp_path, "progress.jsonl", {"kind": "started"}, batch(10))
    progress.update()
    assert progress.position == {"0": 10}


def test_the_lag_counts_acknowledged_events_that_no_batch_has_read(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, 10.0)
    assert progress.status(LOADING).lag is None
    progress.sent_ahead = 1000
    write(tmp_path, "load.jsonl", {"sent": 600, "acknowledged": 500})
    write(tmp_path, "progress.jsonl", batch(900, number=7))
    progress.update()
    status = progress.status(LOADING)
    assert (status.lag, status.batch["batch"], status.load["sent"]) == (600, 7, 600)
    assert progress.has_read({"0": 900}) and not progress.has_read({"0": 901})


def test_only_acknowledgements_are_progress_while_events_wait_for_kafka(tmp_path: Path) -> None:
    def after(**line: int) -> tuple[str, int]:
        write(tmp_path, "load.jsonl", line)
        return progress.of_load()

    progress = RunProgress(tmp_path, 10.0)
    assert progress.of_load() == progress.of_load()
    waiting = after(t_us=1, planned_by_now=10, acknowledged=4, failed=0)
    assert after(t_us=2, planned_by_now=12, acknowledged=4, failed=1) == waiting
    assert after(t_us=3, planned_by_now=12, acknowledged=5, failed=1) != waiting


def test_a_pause_of_the_load_is_progress(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, 10.0)
    write(tmp_path, "load.jsonl", {"t_us": 1, "planned_by_now": 10, "acknowledged": 9, "failed": 1})
    before = progress.of_load()
    write(tmp_path, "load.jsonl", {"t_us": 2, "planned_by_now": 10, "acknowledged": 9, "failed": 1})
    assert progress.of_load() != before


def test_the_warm_up_is_over_when_everything_sent_ahead_is_read(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, 10.0)
    progress.sent_ahead = 1000
    write(tmp_path, "progress.jsonl", batch(999))
    progress.update()
    assert not progress.has_read_ahead()
    write(tmp_path, "progress.jsonl", batch(1000))
    progress.update()
    assert progress.has_read_ahead()


def test_an_engine_without_batches_reports_its_position(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, 10.0)
    for partition, end in (("0", 600), ("1", 400)):
        line = {"kind": "position", "read_us": 5, "end_offsets": {partition: end}}
        write(tmp_path, "progress.jsonl", line)
    progress.update()
    assert (progress.position, progress.batch) == ({"0": 600, "1": 400}, {})


def test_the_time_of_the_newest_batch_outlasts_a_line_without_time(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, 10.0)
    timed = {**batch(10), "duration_ms": {"triggerExecution": 1500}}
    recovered = {**batch(10), "duration_ms": {}, "recovered": True}
    write(tmp_path, "progress.jsonl", {**batch(5), "duration_ms": {"triggerExecution": 900}}, timed, recovered)
    progress.update()
    assert progress.batch_s == 1.5


def test_the_last_row_is_the_newest_of_all_observers(tmp_path: Path) -> None:
    progress = RunProgress(tmp_path, None, observers=2)
    assert progress.last_row_us == 0
    first, second = numbered("observer.jsonl", 2)
    write(tmp_path, first, {"visible": 2, "last_row_us": 9})
    write(tmp_path, second, {"visible": 0, "last_row_us": 0})
    assert progress.last_row_us == 9
    write(tmp_path, second, {"visible": 1, "last_row_us": 12})
    assert progress.last_row_us == 12
