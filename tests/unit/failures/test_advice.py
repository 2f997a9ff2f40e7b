"""The last words of a batch that died: what helps this batch.

They also have the input that the batch reads, and how often it died.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.errors import (
    AnotherDriver,
    DeliveryFailed,
    PermanentFailure,
    PipelineError,
    QueryDied,
    TransactionLost,
    TransactionTooSlow,
)
from oncebench.delivery.failures import spark
from oncebench.delivery.journal import Identity, Journal, open_journal
from pipeline.failures import advised, explain
from tests.unit.pipeline.test_pipeline_config import config

PLANNED = 7


def planned(checkpoint: Path) -> None:
    """Plans batch 7 in a checkpoint with a journal.

    The batch reads offsets 10 to 19 of partition 0.
    """
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir()
    for batch, end in ((PLANNED - 1, 10), (PLANNED, 20)):
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({'in': {'0': end}})}")
    (checkpoint / "commits" / str(PLANNED - 1)).write_text("v1\n{}")


class Ours:
    """A journal that no other driver has taken."""

    def check_still_ours(self) -> None:
        """There is none."""


@pytest.fixture
def said(tmp_path: Path) -> Callable[..., str]:
    """The words of an error of batch 7, which reads offsets 10 to 19 of partition 0."""
    checkpoint = config(tmp_path).checkpoint
    journal = open_journal(checkpoint, Identity("mine", "kafka", "exactly-once", "two-phase", 2))
    planned(checkpoint)

    def words(error: PipelineError, look: str | None = None, decided: bool = False, **changes: Any) -> str:
        if decided:
            Journal(journal.folder, journal.generation).decide(PLANNED, 0, {"partitions": []})
        found = advised(error, config(tmp_path, **changes), journal, lambda: look)
        assert type(found) is type(error)
        return str(found)

    return words


def test_a_slow_transaction_needs_a_longer_time_out_or_a_new_plan(said: Callable[..., str]) -> None:
    words = said(TransactionTooSlow("Slow."))
    assert words.startswith(f"Slow. Batch {PLANNED} is planned: its end is in ")
    assert (
        "max_events_per_batch makes only the batches after it smaller. For this batch raise transaction_time" in words
    )
    assert f"remove from the checkpoint offsets/{PLANNED} and offsets/.{PLANNED}.crc; then set" in words


def test_a_batch_that_may_be_committed_in_part_is_not_planned_again(said: Callable[..., str]) -> None:
    assert "plan it again" not in said(TransactionTooSlow("Slow."), variant="idempotent")
    assert "plan it again" not in said(TransactionLost("Lost."), decided=True)


@pytest.mark.parametrize(
    ("sink", "limit"),
    [("kafka", "transaction.max.timeout.ms"), ("pravega", "controller.transaction.lease.count.max")],
)
def test_the_advice_names_the_limit_of_the_sinks_server(said: Callable[..., str], sink: str, limit: str) -> None:
    words = said(TransactionLost("Lost."), sink=sink)
    assert "For this batch raise transaction_timeout_ms. If the" in words
    assert limit in words


def test_other_sinks_get_no_advice_about_kafkas_time_outs(said: Callable[..., str]) -> None:
    assert said(TransactionLost("Lost."), sink="postgres") == "Lost."


def test_memory_and_a_planned_batch(said: Callable[..., str]) -> None:
    assert f"Batch {PLANNED} is planned" in said(QueryDied(f"OutOfMemoryError. {spark.MEMORY}."))


def test_a_permanent_failure_names_the_input(said: Callable[..., str]) -> None:
    assert said(PermanentFailure("No.")) == f"No. Batch {PLANNED} reads in: partition 0 offsets 10 to 19."


def test_an_unknown_cause_names_the_input_once(said: Callable[..., str]) -> None:
    words = [said(explain(RuntimeError("KeyError: 1"), Ours())) for _ in range(3)]  # type: ignore[arg-type]
    assert [each.count("partition 0 offsets 10 to 19") for each in words] == [1, 1, 1]
    assert "has died 3 times" in words[2]


def test_the_third_death_by_the_same_error_says_so(said: Callable[..., str]) -> None:
    words = [said(DeliveryFailed(f"Failed after {seconds} s.")) for seconds in (1, 2, 3)]
    assert words[:2] == ["Failed after 1 s.", "Failed after 2 s."]
    assert words[2].startswith(f"Failed after 3 s. Batch {PLANNED} has died 3 times by this error")
    assert "partition 0 offsets 10 to 19" in words[2]


def test_what_keeps_the_server_from_taking_rows_is_said(said: Callable[..., str]) -> None:
    assert said(DeliveryFailed("Failed."), "not enough in-sync replicas") == "Failed. Not enough in-sync replicas."


def test_what_the_error_already_says_is_not_said_twice(said: Callable[..., str]) -> None:
    assert said(DeliveryFailed("Topic out has no leader. Failed."), "topic out has no leader") == (
        "Topic out has no leader. Failed."
    )


def test_another_driver_is_no_death_of_the_batch(said: Callable[..., str]) -> None:
    assert [said(AnotherDriver("Other.")) for _ in range(4)] == ["Other."] * 4
