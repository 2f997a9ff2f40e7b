"""The speed of earlier commits, from asv's own files."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed import METRICS
from oncebench.errors import UserError
from oncebench.report.tables.commits import HEADINGS, as_json, commits_in, markdown

FIGURES = {
    "flat_out_s_per_million": 26.5,
    "flat_out_cpu_us_per_event": 47.1,
    "steady_batch_ms": 280.0,
    "steady_p50_ms": 426.0,
    "steady_p99_ms": 1668.0,
}
DAY_MS = 86_400_000


def store(
    folder: Path, commit: str, day: int, factor: float = 1.0, machine: str = "epyc", version: str = "2", **more: Any
) -> Path:
    """Writes a file as asv does, with the figures of one commit."""
    results = {
        f"speed.Speed.track_{name}": [[value * factor], [], version, 0, 1.0, *[None] * 6, [[value * factor]]]
        for name, value in FIGURES.items()
    }
    content = {
        "commit_hash": commit.ljust(40, "0"),
        "env_name": "virtualenv-py3.11",
        "date": day * DAY_MS,
        "params": {"machine": machine, "cpu": f"a processor {machine}, 2 cores"},
        "results": results | {"micro.Digest.time": [[1.0], [], "1"]},
        "version": 2,
    }
    file = folder / "commits" / machine / f"{commit}-virtualenv-py3.11.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content | more))
    return file


def test_every_metric_of_the_benchmark_has_a_column(tmp_path: Path) -> None:
    store(tmp_path, "11111111", 1)
    (commit,) = commits_in(tmp_path)
    assert set(commit.figures) == set(METRICS)
    assert len(HEADINGS) == len(METRICS) + 2


def test_each_figure_has_its_ratio_to_the_oldest_commit(tmp_path: Path) -> None:
    store(tmp_path, "aaaaaaaa", 2, 0.5)
    store(tmp_path, "bbbbbbbb", 1)
    (tmp_path / "commits" / "changes.json").write_text(json.dumps({"aaaaaaaa": "packs events"}))
    (shown,) = as_json(commits_in(tmp_path))
    assert shown["machine"] == "a processor epyc, 2 cores"
    assert shown["rows"] == [
        ("bbbbbbbb", "26.5 (1.00)", "47.1 (1.00)", "280 (1.00)", "426 (1.00)", "1,668 (1.00)", ""),
        ("aaaaaaaa", "13.2 (0.50)", "23.6 (0.50)", "140 (0.50)", "213 (0.50)",
         "834 (0.50)", "packs events"),
    ]  # fmt: skip
    assert shown["files"] == [f"commits/epyc/{commit * 8}-virtualenv-py3.11.json" for commit in "ba"]


def test_machines_and_versions_of_the_benchmark_are_not_mixed(tmp_path: Path) -> None:
    store(tmp_path, "aaaaaaaa", 1)
    store(tmp_path, "bbbbbbbb", 2, version="3")
    store(tmp_path, "cccccccc", 3, machine="xeon")
    assert [[row[0] for row in one["rows"]] for one in as_json(commits_in(tmp_path))] == [
        ["cccccccc"], ["bbbbbbbb"], ["aaaaaaaa"],
    ]  # fmt: skip


def test_text_has_the_table_of_the_page(tmp_path: Path) -> None:
    store(tmp_path, "aaaaaaaa", 1)
    text = markdown(commits_in(tmp_path))
    assert text.startswith("a processor epyc, 2 cores\n\n| commit ")
    assert "| aaaaaaaa | 26.5 (1.00) " in text
    assert markdown(commits_in(tmp_path / "nothing")) == ""


def test_a_commit_that_asv_did_not_measure_is_left_out(tmp_path: Path) -> None:
    store(tmp_path, "aaaaaaaa", 1, results={"micro.Digest.time": [[1.0], [], "1"]})
    failed = {f"speed.Speed.track_{name}": [None, [], "2"] for name in FIGURES}
    store(tmp_path, "bbbbbbbb", 1, results=failed)
    store(tmp_path, "cccccccc", 1, results={"speed.Speed.track_steady_p50_ms": [[1.0], [], "2"]})
    assert commits_in(tmp_path) == []


@pytest.mark.parametrize(
    "damage",
    [{"results": []}, {"date": "Monday"}, {"params": {}}, {"results": {f"speed.Speed.track_{n}": 5 for n in FIGURES}}],
)
def test_a_file_that_is_not_of_asv_is_refused_by_name(tmp_path: Path, damage: dict[str, Any]) -> None:
    file = store(tmp_path, "aaaaaaaa", 1, **damage)
    with pytest.raises(UserError, match=f"{file.name} is no file of asv's results. Copy it again"):
        commits_in(tmp_path)


def test_half_a_file_is_refused_by_name(tmp_path: Path) -> None:
    file = store(tmp_path, "aaaaaaaa", 1)
    file.write_text(file.read_text()[:100])
    with pytest.raises(UserError, match=file.name):
        commits_in(tmp_path)
