"""At-most-once: what a failed write says about a restart, which drops the batch and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from oncebench.delivery.errors import DeliveryFailed, PermanentFailure, PipelineError, QueryDied
from oncebench.delivery.failures import delta
from oncebench.delivery.failures.cause import NO_RESTART, REPEATED, RESTART, UNLESS_THERE, dropped, failure, of_claimed
from oncebench.delivery.failures.claimed import ClaimedWriter, claimed
from oncebench.delivery.failures.postgres import of_sqlstate
from oncebench.delivery.journal import Identity, open_journal
from pipeline.failures import advised
from tests.unit.failures.test_advice import PLANNED, planned
from tests.unit.pipeline.test_pipeline_config import config

OTHERS = (RESTART, NO_RESTART, REPEATED, UNLESS_THERE)


class Task:
    batch, partition = PLANNED, 1

    def reach(self, _point: str) -> None: ...

    def counted(self) -> tuple[int, int]:
        return 0, 0


class Failing:
    """A writer that takes every row, and then fails."""

    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate

    def write(self, task: Any, rows: Iterator[Any]) -> tuple[dict[str, Any], dict[str, float]]:
        list(rows)
        raise failure(of_sqlstate(self.sqlstate), f"batch {task.batch}, partition {task.partition}: refused")


@pytest.mark.parametrize(("sqlstate", "kind"), [("23514", PermanentFailure), ("53100", DeliveryFailed)])
def test_a_failed_write_of_a_claimed_batch_says_that_a_restart_drops_it(sqlstate: str, kind: type) -> None:
    with pytest.raises(DeliveryFailed) as failed:
        ClaimedWriter(Failing(sqlstate)).write(Task(), iter(()))
    said = str(failed.value)
    assert type(failed.value) is kind
    assert said.startswith(f"batch {PLANNED}, partition 1: refused (")
    assert said.endswith(f". {dropped(PLANNED)}")
    assert of_sqlstate(sqlstate).remedy in said
    assert not any(other in said for other in OTHERS)


def test_a_batch_that_another_driver_has_committed_may_be_in_the_table() -> None:
    """Under exactly-once a restart does not write it again then.

    Under at-most-once a restart never does.
    """
    said = str(failure(delta.of_text("[DELTA_CONCURRENT_TRANSACTION] x"), "batch 7 could not be appended: x"))
    assert said.endswith(f"Let only one driver run. {UNLESS_THERE}")
    assert RESTART not in said
    assert of_claimed(said, PLANNED).endswith(f"Let only one driver run. {dropped(PLANNED)}")


def test_a_failed_copy_of_a_rejected_record_is_made_again_by_a_restart() -> None:
    def rows() -> Iterator[Any]:
        raise DeliveryFailed(f"quarantine topic bad: no. {RESTART}")
        yield

    with pytest.raises(DeliveryFailed) as failed:
        ClaimedWriter(Failing("53100")).write(Task(), rows())
    assert str(failed.value) == f"quarantine topic bad: no. {RESTART}"


class FailingWhole:
    """A writer of whole batches that fails with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def write_batch(self, _rows: Any, _batch: int) -> dict[str, float]:
        raise self.error


def test_a_failed_write_of_a_whole_batch_says_that_a_restart_drops_it() -> None:
    permanent = failure(delta.CONDITIONS["DELTA_METADATA_MISMATCH"], "refused")
    with pytest.raises(PermanentFailure) as failed:
        claimed(FailingWhole(permanent)).write_batch(None, PLANNED)
    said = str(failed.value)
    assert said.startswith("refused (the table's columns are not those of the query). Give the table ")
    assert said.endswith(f". {dropped(PLANNED)}")
    assert not any(other in said for other in OTHERS)


def test_an_error_of_the_query_in_a_whole_batch_stays_as_it_is() -> None:
    error = PySparkException("[CAST_INVALID_INPUT] x")
    with pytest.raises(PySparkException) as failed:
        claimed(FailingWhole(error)).write_batch(None, PLANNED)
    assert failed.value is error


@pytest.mark.parametrize(
    ("error", "dropping"),
    [(QueryDied(f"OutOfMemoryError. {REPEATED}"), True),
     (PermanentFailure(f"[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] c. {NO_RESTART} Reject such rows."), True),
     (PermanentFailure(f"[CAST_INVALID_INPUT] x. {NO_RESTART} Use try_cast."), False),
     (DeliveryFailed("No. Nothing of it was written, and a restart leaves it out, as at-most-once allows."), False)],
)  # fmt: skip
@pytest.mark.parametrize("claims", [True, False])
def test_the_last_words_are_true_for_the_jobs_guarantee(
    tmp_path: Path, error: PipelineError, dropping: bool, claims: bool
) -> None:
    changed = config(tmp_path, guarantee="at-most-once", variant="claim")
    journal = open_journal(changed.checkpoint, Identity("mine", "kafka", "at-most-once", "claim", 2))
    planned(changed.checkpoint)
    if claims:
        assert journal.claim(PLANNED)
    said = str(advised(error, changed, journal, lambda: None))
    assert (dropped(PLANNED) in said) == (dropping and claims)
    if dropping and claims:
        assert not any(other in said for other in OTHERS)
        assert said.endswith(f"Batch {PLANNED} reads in: partition 0 offsets 10 to 19.")
    else:
        assert said.startswith(str(error))
