"""Options that several commands share, and the conversion of their values to a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from loadgen.config import MAX_GENERATORS, MAX_SESSIONS, MAX_SKEW
from loadgen.errors import LoadError
from loadgen.pacing import lasts_s, parse_rate, parse_shape, sessions_for
from loadgen.session import EVENTS_PER_SESSION, MAX_RECORD_BYTES
from oncebench.commands.shared.kafka import KAFKA_PARAMETERS, kafka_options
from oncebench.commands.shared.spark import check_master, check_settings, spark_options
from oncebench.delivery.contract import GUARANTEES
from oncebench.errors import ExitCode, UserError
from oncebench.lab.lab import START_TIMEOUT_S
from oncebench.scenario.cell import BROKER_CHOICES, CHECKPOINT_CHOICES, RECOVERY_CHOICES, STATE_CHOICES, Cell
from oncebench.scenario.workloads import WORKLOADS
from pipeline.config import CHANGELOG

F = TypeVar("F", bound=Callable[..., Any])
# The headings of a command's help, with the parameters below each. All other options come first.
HEADINGS: Mapping[str, Sequence[str]] = {
    "Load": (
        "workload", "records", "records_key", "passes", "rate", "duration", "sessions", "shape", "skew", "record_bytes",
        "seed", "generators",
    ),
    "Pipeline": (
        "trigger_ms", "partitions", "open_sessions", "max_events_per_batch", "transaction_timeout_ms", "on_lost",
        "checkpoint", "checkpoint_writing", "state_store", "master", "workers", "spark_conf", "warmup_s",
        "start_timeout_s", "observers",
    ),
    "Servers": ("brokers", "replication", *KAFKA_PARAMETERS, "topic", "postgres"),
    "Files": ("save", "json_path", "publish", "work_dir", "keep"),
}  # fmt: skip
# loadgen's random number generator takes 64 bits. A run's warm-up has the upper half of the seeds
# (`oncebench.run.extra_load.warm_up.WARM_UP_SEED`).
MAX_SEED = 2**63 - 1
MAX_FIRST_SEED = MAX_SEED - 1000  # the further runs of a series have the next seeds
MAX_WARMUP_S = 86_400.0
MAX_OUTAGE_S = 3600.0
MAX_START_TIMEOUT_S = 86_400.0
MAX_OPEN_SESSIONS = 1_000_000  # ten times the largest number that was tested; all of them are in one batch
MAX_PARTITIONS = 256  # each is a Spark task and a transactional id; a batch of 256 takes seconds on two cores
MAX_REPLICATION = 32767  # Kafka sends it as 16 bits


class GroupedCommand(click.Command):
    """A command whose help has its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the command's own options, then those of each heading."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {option.name: record for option in options if (record := option.get_help_record(ctx))}
        grouped = {heading: [records.pop(name) for name in names if name in records]
                   for heading, names in HEADINGS.items()}  # fmt: skip
        for heading, lines in {"Options": list(records.values()), **grouped}.items():
            if lines:
                with formatter.section(heading):
                    formatter.write_dl(lines)


class _Folder(click.Path):
    """A folder. Empty text is refused, because it would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name of the folder is empty. Give a folder that is empty or does not exist yet", param, ctx)
        return super().convert(value, param, ctx)


def finite(_context: click.Context, option: click.Parameter, number: float) -> float:
    """Refuses `nan` and `inf`, which a range of click lets through."""
    if not math.isfinite(number):
        raise click.BadParameter(f"{number} is not a number{'' if option.metavar != 'S' else ' of seconds'}")
    return number


class _Named(click.types.StringParamType):
    """A text that is checked later. If it is missing, click's message ends with `where`."""

    def __init__(self, where: str) -> None:
        self._where = where

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:  # noqa: ARG002  click's
        return self._where


sink_option = click.option(
    "--sink", required=True, type=_Named("`oncebench list` shows all sinks, for example kafka"),
    help="Sink that the pipeline writes to; see `oncebench list`.",
)  # fmt: skip
guarantee_option = click.option(
    "--guarantee", required=True, type=_Named(f"Choose from: {', '.join(GUARANTEES)}"),
    help="Delivery guarantee: at-most-once, at-least-once or exactly-once.",
)  # fmt: skip

publish_option = click.option(
    "--publish", is_flag=True, help="Write to results/, which the repository publishes, instead of results/local/.",
)  # fmt: skip


def load_options(rate: str = "2000", duration: str = "20") -> Callable[[F], F]:
    """The options for the load. `rate` and `duration` are the help texts of their defaults."""

    def decorate(command: F) -> F:
        for option in (
            click.option("--rate", default="2000", metavar="EV/S",
                         help=f"Events per second, or max to send the whole load at the start [default: {rate}]."),
            click.option("--duration", type=float, metavar="S",
                         help=f"Seconds that the load lasts [default: {duration}]."),
            click.option("--sessions", type=int, metavar="N",
                         help=f"Number of sessions of {EVENTS_PER_SESSION} events, instead of --duration."),
            click.option("--shape", default="constant", show_default=True,
                         help="Rate over time: constant, ramp:FROM_RATE or burst:PEAK_RATE:ON_S:EVERY_S."),
            click.option("--record-bytes", type=click.IntRange(0, MAX_RECORD_BYTES), default=0, metavar="N",
                         show_default=True, help="Pad events to this size in bytes; 0: no padding, about 110 bytes."),
            click.option("--seed", type=click.IntRange(0, MAX_SEED), default=1, show_default=True,
                         help="Seed of the load: the same seed produces the same events."),
            kafka_options(),
        )[::-1]:  # fmt: skip
            command = option(command)
        return command

    return decorate


open_sessions_option = click.option(
    "--open-sessions", type=click.IntRange(0, MAX_OPEN_SESSIONS), default=0, metavar="N", show_default=True,
    help="Sessions that are in the pipeline's state before the load starts, and never end.",
)  # fmt: skip

brokers_option = click.option(
    "--brokers", type=click.Choice(BROKER_CHOICES), default=1, show_default=True,
    help="Brokers of the Kafka that is started. With 3, every topic has 3 replicas and min.insync.replicas=2.",
)  # fmt: skip

replication_option = click.option(
    "--replication", type=click.IntRange(1, MAX_REPLICATION), metavar="N",
    help="Replicas of each topic that a run makes in your own Kafka [default: its default.replication.factor].",
)  # fmt: skip


def cell_options(warmup: str = "3") -> Callable[[F], F]:
    """The options for the pipeline. `warmup` is the help text of its default."""

    def decorate(command: F) -> F:
        for option in _cell_options(warmup)[::-1]:
            command = option(command)
        return command

    return decorate


def _cell_options(warmup: str) -> Sequence[Callable[[F], F]]:
    return (
        click.option("--trigger", "trigger_ms", type=click.IntRange(0), default=0, metavar="MS", show_default=True,
                     help="Milliseconds between the starts of micro-batches; 0: no pause."),
        click.option("--partitions", type=click.IntRange(1, MAX_PARTITIONS), default=2, show_default=True,
                     help="Partitions of the input and output topics, and Spark tasks per batch."),
        open_sessions_option,
        brokers_option,
        replication_option,
        click.option("--generators", type=click.IntRange(1, MAX_GENERATORS), default=1, metavar="N", show_default=True,
                     help="Processes that make the load together; each sends some of the sessions."),
        click.option("--observers", type=click.IntRange(1, MAX_PARTITIONS), default=1, metavar="N", show_default=True,
                     help="Processes that follow the output together; each reads some of its partitions. Kafka only."),
        click.option("--max-events-per-batch", type=click.IntRange(1), metavar="N",
                     help="Maximum of input events per micro-batch [default: no limit]."),
        click.option("--transaction-timeout", "transaction_timeout_ms", type=click.IntRange(1000), default=60_000,
                     metavar="MS", show_default=True,
                     help="Milliseconds that a Kafka transaction may stay open, from its first row to its commit."),
        click.option("--on-lost", type=click.Choice(RECOVERY_CHOICES), default="rewrite", show_default=True,
                     help="If Kafka aborts a decided transaction after its time-out: write its rows again, or drop "
                     "them as Flink's sink does."),
        click.option("--checkpoint-writing", type=click.Choice(CHECKPOINT_CHOICES), default="tuned",
                     show_default=True,
                     help="How Spark writes local checkpoint files: tuned (without child processes) or as-shipped."),
        click.option("--state-store", type=click.Choice(STATE_CHOICES), default=CHANGELOG, show_default=True,
                     help="What RocksDB's state store writes per batch: a changelog, or a snapshot of its files."),
        spark_options,
        click.option("--warmup", "warmup_s", type=click.FloatRange(0, MAX_WARMUP_S), default=3.0, callback=finite,
                     metavar="S",
                     help=f"Seconds after the start of the load that are not measured [default: {warmup}]."),
    )  # fmt: skip


def existing_path(stored: Path) -> Path:
    """The path of a run folder or a file of reports, after a check that it exists.

    Raises:
        UserError: the path does not exist (exit code 2).
    """
    if not stored.exists():
        raise UserError(
            f"{stored} does not exist. Give a run's work folder, a report.json, or a file of reports "
            "(results/local/runs/*.jsonl)",
            exit_code=ExitCode.USAGE,
        )
    return stored


random_kills_option = click.option(
    "--random-kills", type=click.IntRange(0), default=0, metavar="N",
    help="Number of SIGKILLs at random times, drawn from --seed, until the pipeline has read the whole load. If "
    "kills are left then, they test nothing, and the run is vacuous. Each restart takes several seconds of the load.",
)  # fmt: skip
outage_option = click.option(
    "--outage", "outage_s", type=click.FloatRange(0, MAX_OUTAGE_S), default=0.0, callback=finite, metavar="S",
    show_default=True,
    help="Seconds between a random kill and the restart. Under exactly-once the kill then comes while a Kafka "
    "transaction is being committed, and the commit is lost.",
)  # fmt: skip
skew_option = click.option(
    "--skew", type=click.FloatRange(0, MAX_SKEW), default=0.0, callback=finite, metavar="EXPONENT", show_default=True,
    help="How unevenly sessions are spread over the partitions of the input: partition p (from 1) gets a share "
    "proportional to 1/p^EXPONENT (Zipf). 0: a session's key decides.",
)  # fmt: skip
work_dir_option = click.option(
    "--work-dir", type=_Folder(path_type=Path, file_okay=False), metavar="DIR",
    help="Folder for the files of the runs [default: results/local/work/<command>-<time>-<pid>].",
)  # fmt: skip


def start_timeout(more: str = "") -> Callable[[F], F]:
    """Returns the option --start-timeout; `more` ends its help."""
    text = "Seconds that a starting pipeline may give no sign of life: no line in its log, and no progress."
    return click.option(
        "--start-timeout", "start_timeout_s", type=click.FloatRange(1, MAX_START_TIMEOUT_S), default=START_TIMEOUT_S,
        callback=finite, metavar="S", show_default=True,
        help=f"{text} {more}".strip(),
    )  # fmt: skip


start_timeout_option = start_timeout()
keep_option = click.option(
    "--keep", is_flag=True,
    help="Also keep the servers' data, the checkpoint with the journal, and a file sink's output. The record, the "
    "report and the logs are always kept.",
)  # fmt: skip


def workload_option(names: Collection[str]) -> Callable[[F], F]:
    """The option for these workloads."""
    described = "; ".join(f"{name}: {WORKLOADS[name].description}" for name in names)
    return click.option(
        "--workload", type=click.Choice(tuple(names)), default=Cell.workload, show_default=True,
        help=f"What the pipeline computes. {described}.",
    )  # fmt: skip


def base_cell(rate: str, duration: float | None, sessions: int | None, shape: str, **fields: Any) -> Cell:
    """A cell without sink and guarantee, from the values of the options above.

    Raises:
        UserError: a value is not possible (exit code 2).
    """
    try:
        events_per_s = parse_rate(float(rate) if _is_number(rate) else rate)
        if sessions is not None and duration is not None:
            raise UserError("give --duration or --sessions, not both", exit_code=ExitCode.USAGE)
        if duration is not None and not (math.isfinite(duration) and duration > 0):
            raise UserError(f"--duration {duration}: it must be a number of seconds above 0", exit_code=ExitCode.USAGE)
        if sessions is not None and sessions < 1:
            raise UserError(f"--sessions {sessions}: at least 1 is needed", exit_code=ExitCode.USAGE)
        wanted_s = duration or DEFAULT_DURATION_S
        wanted = sessions or sessions_for(shape, events_per_s, wanted_s)
        if wanted > MAX_SESSIONS:
            raise UserError(
                f"{wanted} sessions are more than a load can have ({MAX_SESSIONS})", exit_code=ExitCode.USAGE
            )
        lasts = lasts_s(parse_shape(shape, events_per_s, wanted * EVENTS_PER_SESSION), wanted * EVENTS_PER_SESSION)
        if sessions is None and abs(lasts / wanted_s - 1) > ROUNDED:
            raise UserError(
                f"--duration {wanted_s:g}: a load has whole sessions of {EVENTS_PER_SESSION} events, and would last "
                f"{lasts:g} s at this rate. Give --duration {lasts:g}, or a higher --rate",
                exit_code=ExitCode.USAGE,
            )
    except LoadError as error:
        raise UserError(str(error), exit_code=ExitCode.USAGE) from error
    check_master(fields.get("master", Cell.master))
    if fields.get("workers") and fields.get("master", Cell.master) != Cell.master:
        raise UserError("--cluster starts a Spark of its own, and --master names one. Give one of them",
                        exit_code=ExitCode.USAGE)  # fmt: skip
    check_settings(fields.get("spark_conf", ()))
    return replace(Cell("", "", ""), rate=events_per_s, sessions=wanted, shape=shape, **fields)


DEFAULT_DURATION_S = 20.0
# How far whole sessions may change a duration: short loads are rounded, and a load of twice the time is a surprise.
ROUNDED = 0.1


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
