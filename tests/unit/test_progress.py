"""What a start tells of the batch that it will run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.progress import open_batch


@pytest.mark.parametrize(
    ("offsets", "commits", "left"),
    [((), (), None), ((0,), (), 0), ((0, 1), (0,), 1), ((9, 10), (9, 10), None), ((9, 10, 11), (9, 10), 11)],
)
def test_the_batch_that_spark_runs_again_is_the_newest_that_it_has_not_committed(
    tmp_path: Path, offsets: tuple[int, ...], commits: tuple[int, ...], left: int | None
) -> None:
    for log, batches in (("offsets", offsets), ("commits", commits)):
        (tmp_path / log).mkdir()
        for batch in batches:
            (tmp_path / log / str(batch)).touch()
            (tmp_path / log / f".{batch}.crc").touch()
    assert open_batch(tmp_path) == left


def test_a_new_checkpoint_has_none(tmp_path: Path) -> None:
    assert open_batch(tmp_path / "new") is None
