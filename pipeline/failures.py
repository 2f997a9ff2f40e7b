"""Finds the cause of a query's failure, and adds what helps, for the last line of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError

from oncebench.delivery.contract import AT_MOST_ONCE
from oncebench.delivery.errors import (
    AnotherDriver,
    PermanentFailure,
    PipelineError,
    RecordTooLarge,
    RefusedStart,
    StoppedGently,
    TransactionLost,
    TransactionTooSlow,
)
from oncebench.delivery.failures import deaths, delta, spark
from oncebench.delivery.failures.cause import NO_RESTART, REPEATED, RESTART, dropped, of_claimed
from oncebench.delivery.journal import Journal
from oncebench.delivery.stores.entries import UNAVAILABLE
from oncebench.delivery.topics.largest import largest_record
from oncebench.jobs.checkpoint import open_batch, planned_range
from oncebench.jobs.exits import of_spark, raised_in
from oncebench.kafka_access.connection import is_secured, why_refused
from oncebench.sinks.registry import SINKS
from pipeline.config import PipelineConfig

_log = logging.getLogger(__name__)


def explain(failure: BaseException, journal: Journal) -> PipelineError:
    """Returns the cause of a failure as one of our errors.

    It looks for another driver first, then for an error that a task raised, then for the first cause in Java or Python.
    Call it while the JVM runs, because the JVM holds the texts.
    """
    if isinstance(failure, PipelineError):
        return failure
    try:
        with suppress(*UNAVAILABLE):  # the disk of the checkpoint may be what has failed
            journal.check_still_ours()
    except AnotherDriver as other:
        return other
    raised = raised_in(failure)
    if raised is not None:
        return raised
    with suppress(Py4JError, OSError):
        _log.error("the query died:\n%s", failure)
    return of_spark(failure)


def advised(
    error: PipelineError, config: PipelineConfig, journal: Journal, look: Callable[[], str | None]
) -> PipelineError:
    """Adds advice for the open batch to the error of a running query.

    Returns the error unchanged if the checkpoint cannot be read. If Kafka refuses the login, its client reports only
    late rows or answers. Such an error becomes permanent here.

    Args:
        look: returns what keeps the sink's server from taking rows.
    """
    if isinstance(error, (AnotherDriver, RefusedStart, StoppedGently)):
        return error
    with suppress(*UNAVAILABLE):
        return _advised(error, config, journal, look)
    return error


def _advised(
    error: PipelineError, config: PipelineConfig, journal: Journal, look: Callable[[], str | None]
) -> PipelineError:
    batch = open_batch(config.checkpoint)
    sentences = [_by_guarantee(error, config, journal, batch)]
    refused = _refused_access(config) if error.restart_helps else None
    if refused is not None:
        return PermanentFailure(f"{_without_restart(sentences[0])} {NO_RESTART} {refused}, then start again.")
    if error.restart_helps:
        with suppress(KafkaException):
            found = look()
            new = found is not None and found[1:] not in sentences[0]
            sentences += [f"{found[0].upper()}{found[1:]}."] if found and new else []
    if batch is None:
        return type(error)(" ".join(sentences))
    died = deaths.count(journal.folder, batch, error)
    limit = SINKS[config.sink].timeout_limit
    if limit and isinstance(error, (TransactionTooSlow, TransactionLost)):
        sentences.append(_longer(config, batch, journal, limit))
    elif any(remedy in str(error) for remedy in (spark.MEMORY, spark.WORKERS_MEMORY)):
        sentences.append(_planned(config, batch))
    elif not error.restart_helps or dropped(batch) in sentences[0] or spark.OTHER.remedy in sentences[0]:
        sentences.append(_input(config, batch, isinstance(error, RecordTooLarge)))
    if error.restart_helps and died >= deaths.SUSPICIOUS:
        sentences.append(
            f"Batch {batch} has died {died} times by this error, so a restart alone does not seem to help."
        )
        sentences += [] if spark.OTHER.remedy in sentences[0] else [_input(config, batch)]
    return type(error)(" ".join(filter(None, sentences)))


def _by_guarantee(error: PipelineError, config: PipelineConfig, journal: Journal, batch: int | None) -> str:
    """Returns an error's text, true for the job's guarantee.

    A batch that at-most-once has claimed is not written again. A restart still evaluates the query and consumes its
    rows, so an error of the query that no restart mends stays one.
    """
    if config.guarantee != AT_MOST_ONCE or batch is None or not journal.is_claimed(batch):
        return str(error)
    passes = error.restart_helps or delta.is_named(str(error))
    return of_claimed(str(error), batch) if passes else str(error)


def _refused_access(config: PipelineConfig) -> str | None:
    """Returns why a secured Kafka refuses this pipeline's login or certificate.

    Returns None without a lasting refusal.
    """
    client = config.kafka_client
    found = why_refused(client) if is_secured(client) else None
    return f"Kafka at {client['bootstrap.servers']}: {found.why}" if found is not None and found.lasting else None


def _without_restart(text: str) -> str:
    for sentence in (RESTART, REPEATED):
        text = text.replace(f" {sentence}", "")
    return text


def _planned(config: PipelineConfig, batch: int) -> str:
    return (
        f"Batch {batch} is planned: its end is in {config.checkpoint}/offsets/{batch}. max_events_per_batch makes only "
        "the batches after it smaller."
    )


def _longer(config: PipelineConfig, batch: int, journal: Journal, limit: str) -> str:
    """Returns what helps a batch that takes longer than its transactions may."""
    longer = f"{_planned(config, batch)} For this batch raise transaction_timeout_ms. {limit}"
    if config.variant != "two-phase" or journal.newest_decision() == batch:
        return longer
    # Spark refuses to plan batch 0 while there is any state. No state belongs to an earlier batch then.
    parts = [f"offsets/{batch}", f"offsets/.{batch}.crc", *(["the folder state"] if batch == 0 else [])]
    return (
        f"{longer} Or let Spark plan it again, which is safe because it is not decided. While no driver runs, remove "
        f"from the checkpoint {', '.join(parts[:-1])} and {parts[-1]}; then set max_events_per_batch."
    )


def _input(config: PipelineConfig, batch: int, with_largest: bool = False) -> str:
    """Returns which records a batch reads, and the largest of them."""
    with suppress(PipelineError):
        ranges = planned_range(config.checkpoint, batch, config.input_topic)
        listed = ", ".join(f"partition {p} offsets {first} to {end - 1}" for p, (first, end) in sorted(ranges.items())
                           if first < end)  # fmt: skip
        text = f"Batch {batch} reads {config.input_topic}: {listed or 'no record'}."
        largest = largest_record(config.kafka_client, config.input_topic, ranges) if with_largest else None
        if largest is not None:
            where = f"partition {largest.partition} offset {largest.offset}"
            text += f" Its largest record is {where} ({largest.size:,} bytes)."
        return text
    return ""
