"""Sends the events ahead of the load: sessions that stay open, and small warm-up batches.

Promise: both auditors judge these events like every other event. They count as foreign, because the load's ledger does
not list them: a warm-up session is expected to produce its rows, a session that stays open is not. Failure: a load
cannot start, for example because Kafka does not answer (`UserError`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

from loadgen.config import LoadConfig, Replayed
from loadgen.errors import LoadError
from loadgen.producer import run_load
from loadgen.session import EVENTS_PER_SESSION
from oncebench.errors import UserError
from oncebench.kafka_access.access import KafkaAccess
from pipeline.config import RECORDS, SESSIONS

# The first batches include JIT compilation and the first RocksDB files. After three batches the times have settled.
WARM_UP_BATCHES = 3
WARM_UP_SESSIONS = 10  # per batch
# No load uses this seed or a higher one, so session keys never collide with those of a load.
WARM_UP_SEED = 2**63
# The first event opens a session. From then on the session reserves a place for each of its 100 values.
OPEN_EVENTS = 1


def send_warm_up(
    kafka: KafkaAccess,
    topic: str,
    folder: Path,
    number: int,
    replayed: Mapping[str, Any] | None = None,
    stop: Event | None = None,
) -> int:
    """Sends the sessions of warm-up batch `number`; returns the number of acknowledged events.

    Args:
        replayed: the file of a load that replays one (`loadgen.config.Replayed`); its records are sent instead.
        stop: see `send_sessions`.
    """
    ledger = folder / "warm-up" / str(number)
    return send_sessions(kafka, topic, ledger, WARM_UP_SESSIONS, seed=number, replayed=replayed, stop=stop)


def open_sessions(kafka: KafkaAccess, topic: str, folder: Path, sessions: int, stop: Event | None = None) -> int:
    """Begins sessions that never end; returns the number of acknowledged events."""
    return send_sessions(kafka, topic, folder / "warm-up" / "open", sessions, WARM_UP_BATCHES, OPEN_EVENTS, stop=stop)


def send_sessions(
    kafka: KafkaAccess,
    topic: str,
    ledger: Path,
    sessions: int,
    seed: int,
    events_per_session: int = EVENTS_PER_SESSION,
    replayed: Mapping[str, Any] | None = None,
    stop: Event | None = None,
    started_us: int | None = None,
) -> int:
    """Sends sessions at once, and keeps their ledger; returns the number of acknowledged events.

    Args:
        seed: from 0 on, another one for each call of a run.
        replayed: see `send_warm_up`.
        stop: when set, the sending ends, and so does the wait for Kafka's answers.
        started_us: the event time of the first event, in epoch µs; None: now.

    Raises:
        UserError: the events could not be sent.
    """
    ledger.parent.mkdir(exist_ok=True)
    try:
        config = LoadConfig(
            **kafka.as_json(),
            topic=topic,
            rate="max",
            sessions=sessions,
            ledger_dir=ledger,
            seed=WARM_UP_SEED + seed,
            events_per_session=events_per_session,
            workload=SESSIONS if replayed is None else RECORDS,
            replayed=None if replayed is None else Replayed(**replayed),
        )
        done = run_load(config, stop, abandon=stop, started_us=started_us)
    except LoadError as error:
        raise UserError(f"the events before or after the load could not be sent: {error}") from error
    if done.error:
        raise UserError(f"the events before or after the load could not be sent: {done.error}")
    return done.acknowledged
