"""What is in the topic before the load: sessions that stay open, and the small batches that pay for start-up.

Promise: what these loads put into the topic is judged like every other event (as foreign, since the load's ledger does
not know it): a priming session owes its rows, a session that stays open owes none. What can go wrong: a load cannot
start, because Kafka does not answer, say (`UserError`).
"""

from __future__ import annotations

from pathlib import Path

from loadgen.config import LoadConfig
from loadgen.errors import LoadError
from loadgen.producer import run_load
from oncebench.errors import UserError

# The first batches pay for JIT and first RocksDB files; after three of them times have settled.
PRIMING_BATCHES = 3
PRIMING_SESSIONS = 10
PRIMING_SEED = 2**63  # their session keys, and those that stay open, must not meet those of any load
# The first event alone opens a session, which holds a place for each of its 100 values from then on.
OPEN_EVENTS = 1


def prime(bootstrap_servers: str, topic: str, folder: Path, number: int) -> int:
    """Sends the sessions of priming batch `number`; returns how many events Kafka has acknowledged."""
    return _send(bootstrap_servers, topic, folder / "priming" / str(number), PRIMING_SESSIONS, seed=number)


def open_sessions(bootstrap_servers: str, topic: str, folder: Path, sessions: int) -> int:
    """Begins sessions that never end; returns how many events Kafka has acknowledged."""
    return _send(bootstrap_servers, topic, folder / "priming" / "open", sessions, PRIMING_BATCHES, OPEN_EVENTS)


def _send(
    bootstrap_servers: str, topic: str, ledger: Path, sessions: int, seed: int, events_per_session: int = 100
) -> int:
    ledger.parent.mkdir(exist_ok=True)
    config = LoadConfig(
        bootstrap_servers=bootstrap_servers,
        topic=topic,
        rate="max",
        sessions=sessions,
        ledger_dir=ledger,
        seed=PRIMING_SEED + seed,
        events_per_session=events_per_session,
    )
    try:
        return run_load(config).acknowledged
    except LoadError as error:
        raise UserError(f"the first events could not be sent: {error}") from error
