"""Starts the sink of a job, checked against its journal and its checkpoint.

Promise: all checks come before anything is read or written. The journal has taken the generation before, so an older
driver stops. The sink then fences that driver's producers and aborts what it left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from oncebench.delivery.contract import EXACTLY_ONCE, Sink
from oncebench.delivery.errors import NoKafka, RefusedStart
from oncebench.delivery.failures.kafka import named, of_error
from oncebench.delivery.journal import Identity, Journal
from oncebench.delivery.starts.drivers import refuse_newer_sink
from oncebench.jobs.checkpoint import begun_at, last_batch, newest_finished, open_batch
from oncebench.jobs.output import OutputChecks, Target
from oncebench.kafka_access.connection import is_secured, why_no_connection, why_refused


def identity_of(target: Target, partitions: int) -> Identity:
    """Returns what a checkpoint stores about the job that it belongs to."""
    support = target.support
    return Identity(target.sink_id, target.kind.name, support.guarantee, support.variant, partitions)


def start_sink(sink: Sink, target: Target, journal: Journal, checks: OutputChecks, trigger_s: float = 0.0) -> None:
    """Starts the sink, and compares it with journal and checkpoint.

    Args:
        sink: not started yet.
        target: the job's sink.
        journal: of the checkpoint, with this driver's generation.
        checks: the comparisons of this start.
        trigger_s: the longest time between two batches with input; 0: not known.

    Raises:
        RefusedStart: a check failed; the message names the next step.
        AnotherDriver: a newer driver was started meanwhile.
        KafkaException, kafka.errors.KafkaError: Kafka does not answer.
    """
    decided = journal.newest_prepared(newest_finished(target.checkpoint))
    checks.before_sink(sink)
    # Without a decision, two-phase can have committed nothing.
    uncertain = target.support.variant != "two-phase" or journal.newest_decision() == open_batch(target.checkpoint)
    if target.support.guarantee == EXACTLY_ONCE and uncertain:
        _refuse_expired_markers(sink, target, trigger_s)
    try:
        sink.start(target.support, journal.generation, decided)
    except RefusedStart:
        journal.check_still_ours()  # if a newer driver overtook this start, that is the reason
        raise
    journal.check_still_ours()  # a slow start may have fenced a newer driver: the newer one continues
    refuse_older_checkpoint(sink, target)
    checks.after_sink(sink)


def refuse_access(client: Mapping[str, Any]) -> None:
    """Refuses a secured Kafka that no later start could use.

    Sends no request to a Kafka without TLS and login.

    Raises:
        RefusedStart: a certificate or a login is wrong; the message names which.
    """
    found = why_refused(client) if is_secured(client) else None
    if found is not None and found.lasting:
        raise RefusedStart(f"Kafka at {client['bootstrap.servers']}: {found.why}, then start again.")


@contextmanager
def kafka_must_answer(
    servers: str,
    sink_id: str,
    output: str = "TOPIC",
    *,
    again: str = "start again",
    kept: str = "No row was read or written",
) -> Iterator[None]:
    """Converts errors of both Kafka clients to one that names the cluster and the next step.

    Args:
        servers: of the cluster.
        sink_id: of the job, for commands that name its groups and transactional ids.
        output: its topic, for commands that name it.
        again: what to do when Kafka answers.
        kept: what the error has not harmed.

    Raises:
        RefusedStart: the next attempt would meet the same error.
        NoKafka: Kafka did not answer; try again.
    """
    try:
        yield
    except (KafkaException, KafkaError) as error:
        text = error.args[0] if error.args else repr(error)
        cause = named(of_error(error), output, sink_id)
        if cause.permanent:
            raise RefusedStart(f"Kafka at {servers}: {cause.reason} ({text}). {cause.remedy}, then {again}.") from error
        unconnected = why_no_connection(servers)  # the clients only say that they have waited
        text = f"{text} ({unconnected})" if unconnected else text
        raise NoKafka(
            f"Kafka at {servers} did not answer a request: {text}. Check that it runs and that the "
            f"address is right. {kept}; {again}."
        ) from error


def refuse_older_checkpoint(sink: Sink, target: Target) -> None:
    """Refuses a checkpoint that lacks batches which the sink holds.

    Raises:
        RefusedStart: the checkpoint is new, older, or another's.
    """
    refuse_newer_sink(sink.newest_batch(), last_batch(target.checkpoint), target.sink_id, str(target.checkpoint))


def _refuse_expired_markers(sink: Sink, target: Target, trigger_s: float) -> None:
    checkpoint = target.checkpoint
    batch, limit = open_batch(checkpoint), sink.forgets_after_s()
    if limit is not None and trigger_s > limit:
        raise RefusedStart(
            f"trigger_ms is {trigger_s * 1000:.0f}, and the sink keeps its markers for {limit:g} s only (Kafka: "
            "offsets.retention.minutes). A replay could find none. Take a shorter trigger_ms, or raise the limit on "
            "the brokers, which takes a restart of each."
        )
    begun = None if batch is None else begun_at(checkpoint, batch)
    if begun is None or limit is None or time.time() - begun <= limit:
        return
    raise RefusedStart(
        f"batch {batch} was begun {(time.time() - begun) / 60:.0f} minutes ago, but the sink keeps markers for "
        f"{limit / 60:.0f} only (Kafka: offsets.retention.minutes), so a replay could write it twice. "
        f"Check whether its rows are in the output: its input ends at {checkpoint}/offsets/{batch}, and begins where "
        "the file before ends. If none is there, raise offsets.retention.minutes above that age, and restart "
        "brokers and job; if any is there, take a new checkpoint, sink_id and output."
    )
