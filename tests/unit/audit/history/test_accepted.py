"""What the texts of accepted losses name, one beside the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oncebench.audit.python.history.accepted import Accepted

DONE = [{"kind": "batch", "batch": number} for number in (0, 2, 1)]


def gap(text: str) -> dict[str, Any]:
    return {"kind": "gap", "text": text}


@pytest.mark.parametrize(
    ("texts", "batches"),
    [
        (["output/0:0..1,output/1:6..7"], {1, 7}),
        (["output/0:6..7", "output/0:0..1"], {1, 7}),
        (["output/0:6..7", "output/table:a..b"], {0, 1, 2, 7}),
        (["output/table:a..b", "output/all:none..0"], {0, 1, 2}),
    ],
)
def test_each_accepted_text_adds_its_batches_to_those_named_before(texts: list[str], batches: set[int]) -> None:
    assert Accepted.of([*DONE, *map(gap, texts)]).batches == batches


def test_without_a_batch_before_it_another_output_names_none() -> None:
    assert Accepted.of([gap("output/table:a..b"), *DONE]) == Accepted()


def test_each_accepted_text_adds_its_offsets_to_those_named_before() -> None:
    accepted = Accepted.of([gap("input/0:3..4,input/1:5..5"), gap("input/0:7..7")])
    places = [(0, 3), (0, 4), (0, 5), (0, 7), (1, 5), (1, 7)]
    partition, offset = np.array(places).T
    assert accepted.records(partition, offset).tolist() == [True, True, False, True, True, False]
