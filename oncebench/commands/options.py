"""Options that several commands share, and how their words become a cell."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from loadgen.config import MAX_SESSIONS
from loadgen.errors import LoadError
from loadgen.pacing import parse_rate, parse_shape, sessions_for
from loadgen.session import MAX_RECORD_BYTES
from oncebench.delivery.errors import RefusedStart
from oncebench.errors import USAGE, UserError
from oncebench.scenario.cell import CHECKPOINT_CHOICES, RECOVERY_CHOICES, STATE_CHOICES, Cell, prepares
from oncebench.sinks.postgres.connection import VARIABLE, secrets
from oncebench.sinks.registry import suite_sinks
from pipeline.config import CHANGELOG
from pipeline.spark.session import refuse_task_retries

F = TypeVar("F", bound=Callable[..., Any])
_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://.+|yarn|k8s://.+")
MAX_SEED = 2**64 - 1  # loadgen's random numbers are made of 64 bits
MAX_WARMUP_S = 86_400.0
MAX_OPEN_SESSIONS = 1_000_000  # ten times what was tried; they are in one batch
MAX_PARTITIONS = 64  # a task each; more than that says nothing on one machine


def _finite(_context: click.Context, _option: click.Parameter, number: float) -> float:
    if not math.isfinite(number):
        raise click.BadParameter(f"{number} is no number of seconds")
    return number


def load_options(rate: str = "2000", duration: str = "20") -> Callable[[F], F]:
    """How much load, at what pace. `rate` and `duration`: what the help says of their defaults."""

    def decorate(command: F) -> F:
        for option in (
            click.option("--rate", default="2000", metavar="EV/S",
                         help=f"Events per second, or max [default: {rate}]."),
            click.option("--duration", type=float, metavar="S", help=f"How long the load lasts [default: {duration}]."),
            click.option("--sessions", type=int, metavar="N", help="Instead of a duration: sessions of 100 events."),
            click.option("--shape", default="constant", show_default=True,
                         help="constant, ramp:FROM_RATE or burst:PEAK_RATE:ON_S:EVERY_S."),
            click.option("--record-bytes", type=click.IntRange(0, MAX_RECORD_BYTES), default=0, metavar="N",
                         show_default=True, help="Pad events to so many bytes; 0: as they are, some 110."),
            click.option("--seed", type=click.IntRange(0, MAX_SEED), default=1, show_default=True,
                         help="Of the load: with the same seed come the same events."),
            click.option("--bootstrap-servers", metavar="HOST:PORT,..", help="Your own Kafka instead of one of ours."),
        )[::-1]:  # fmt: skip
            command = option(command)
        return command

    return decorate


open_sessions_option = click.option(
    "--open-sessions", type=click.IntRange(0, MAX_OPEN_SESSIONS), default=0, metavar="N", show_default=True,
    help="Sessions that are in the pipeline's state before the load begins, and never end.",
)  # fmt: skip


def cell_options(warmup: str = "3") -> Callable[[F], F]:
    """What the pipeline is to be like. `warmup`: what the help says of its default."""

    def decorate(command: F) -> F:
        for option in _cell_options(warmup)[::-1]:
            command = option(command)
        return command

    return decorate


def _cell_options(warmup: str) -> Sequence[Callable[[F], F]]:
    return (
        click.option("--trigger", "trigger_ms", type=click.IntRange(0), default=0, metavar="MS", show_default=True,
                     help="Time between micro-batches; 0: as fast as possible."),
        click.option("--partitions", type=click.IntRange(1, MAX_PARTITIONS), default=2, show_default=True,
                     help="Of the topics, and tasks per batch."),
        open_sessions_option,
        click.option("--max-events-per-batch", type=click.IntRange(1), metavar="N", help="Limit of one micro-batch."),
        click.option("--transaction-timeout", "transaction_timeout_ms", type=click.IntRange(1000), default=60_000,
                     metavar="MS", show_default=True,
                     help="How long a transaction may stay open, from its first row to its commit."),
        click.option("--on-lost", type=click.Choice(RECOVERY_CHOICES), default="rewrite", show_default=True,
                     help="What becomes of a decided transaction that timed out; drop is what Flink's sink does."),
        click.option("--checkpoint-writing", type=click.Choice(CHECKPOINT_CHOICES), default="tuned",
                     show_default=True, help="How Spark writes checkpoint files on a local disk."),
        click.option("--state-store", type=click.Choice(STATE_CHOICES), default=CHANGELOG, show_default=True,
                     help="What of RocksDB's state is written in each batch: its changes, or its files."),
        click.option("--master", default="local[2]", show_default=True, help="Spark master."),
        click.option("--warmup", "warmup_s", type=click.FloatRange(0, MAX_WARMUP_S), default=3.0, callback=_finite,
                     metavar="S",
                     help=f"What is measured begins so long after the load's start [default: {warmup}]."),
    )  # fmt: skip


def _use_postgres(context: click.Context, _option: click.Parameter, dsn: str | None) -> None:
    """Names the user's own server to this process and its children while the command runs."""
    if dsn is None:
        return
    try:
        secret = secrets(dsn)
    except ValueError as error:
        raise UserError(f"--postgres: {error}", exit_code=USAGE) from None
    if secret:
        raise UserError(
            "--postgres holds a password, which every user of this machine could read in the list of processes: give "
            f"it in PGPASSWORD, in the file that PGPASSFILE names, or the whole DSN in {VARIABLE}",
            exit_code=USAGE,
        )
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = dsn
    context.call_on_close(lambda: _restore(before))


def _restore(before: str | None) -> None:
    os.environ.pop(VARIABLE, None)
    if before is not None:
        os.environ[VARIABLE] = before


def refuse_idle_postgres(sinks: Iterable[str]) -> None:
    """Refuses a --postgres that nothing would use.

    Raises:
        UserError: it was given, and none of these sinks writes to PostgreSQL (exit code 2).
    """
    given = click.get_current_context().get_parameter_source("postgres") is ParameterSource.COMMANDLINE
    if given and not any("postgres" in suite_sinks()[sink].traits.services for sink in sinks):
        able = ", ".join(name for name, sink in suite_sinks().items() if "postgres" in sink.traits.services)
        raise UserError(f"--postgres is of no use here: only these sinks write to it: {able}", exit_code=USAGE)


def refuse_idle_on_lost(cells: Iterable[Cell]) -> None:
    """Refuses an --on-lost that nothing would ask.

    Raises:
        UserError: it was given, and none of these cells prepares what could be lost (exit code 2).
    """
    given = click.get_current_context().get_parameter_source("on_lost") is ParameterSource.COMMANDLINE
    if given and not any(prepares(cell) for cell in cells):
        raise UserError(
            "--on-lost is of no use here: only a two-phase variant prepares what could be lost after its decision",
            exit_code=USAGE,
        )


def existing(stored: Path) -> Path:
    """A place that was named to be read.

    Raises:
        UserError: there is nothing (exit code 2).
    """
    if not stored.exists():
        raise UserError(
            f"{stored} does not exist; give a run's work folder, a report.json, or a file of reports "
            "(results/local/runs/*.jsonl)",
            exit_code=USAGE,
        )
    return stored


postgres_option = click.option(
    "--postgres", metavar="DSN", expose_value=False, callback=_use_postgres,
    help="Your own PostgreSQL instead of one of ours; no password in it.",
)  # fmt: skip
work_dir_option = click.option(
    "--work-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Where runs keep their files [default: results/local/work/<what>-<time>-<pid>].",
)  # fmt: skip
keep_option = click.option(
    "--keep", is_flag=True,
    help="Keep the servers' data, the checkpoint (with the journal) and a file sink's output as well; without it what "
    "was recorded, the report and the logs stay.",
)  # fmt: skip


def base_cell(rate: str, duration: float | None, sessions: int | None, shape: str, **others: Any) -> Cell:
    """A cell without sink and guarantee, from the words of the options above.

    Raises:
        UserError: a word that will not do (exit code 2).
    """
    try:
        events_per_s = parse_rate(float(rate) if _is_number(rate) else rate)
        if sessions is not None and duration is not None:
            raise UserError("give --duration or --sessions, not both", exit_code=USAGE)
        if duration is not None and not (math.isfinite(duration) and duration > 0):
            raise UserError(f"--duration {duration}: it must be a number of seconds above 0", exit_code=USAGE)
        if sessions is not None and sessions < 1:
            raise UserError(f"--sessions {sessions}: at least 1 is needed", exit_code=USAGE)
        wanted = sessions or sessions_for(shape, events_per_s, duration or DEFAULT_DURATION_S)
        if wanted > MAX_SESSIONS:
            raise UserError(f"{wanted} sessions are more than a load can have ({MAX_SESSIONS})", exit_code=USAGE)
        parse_shape(shape, events_per_s, wanted * 100)
    except OverflowError:
        raise UserError(f"--rate {rate} and --duration {duration} make no load", exit_code=USAGE) from None
    except LoadError as error:
        raise UserError(str(error), exit_code=USAGE) from error
    master = others.get("master", "local[2]")
    if not _MASTER.fullmatch(master):
        raise UserError(f"--master {master!r} is no Spark master; local[2] or spark://host:7077, say", exit_code=USAGE)
    try:
        refuse_task_retries(master)
    except RefusedStart as refused:
        raise UserError(str(refused), exit_code=USAGE) from None
    return replace(Cell("", "", ""), rate=events_per_s, sessions=wanted, shape=shape, **others)


DEFAULT_DURATION_S = 20.0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
