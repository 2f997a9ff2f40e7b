"""`oncebench transactions`: lists, commits and aborts the transactions of a dead job.

The dead job has left these transactions open.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from oncebench.commands.shared.checkpoint import CheckpointType
from oncebench.commands.shared.kafka import kafka_options
from oncebench.commands.shared.postgres import own_postgres_option
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores.choose import Place
from oncebench.delivery.transactions.decided import ABORT, AGAIN, COMMIT, Decision, Judged
from oncebench.delivery.transactions.left import ENDING, LOST
from oncebench.errors import ExitCode, UserError
from oncebench.jobs.start import kafka_must_answer
from oncebench.jobs.transactions import DONE, Ended, LeftOpen, Owner, owner_of_checkpoint, owner_of_sink_id
from oncebench.kafka_access.access import KafkaAccess
from oncebench.servers.kafka.external import external

_HEADINGS = ("transaction", "batch", "partitions", "generation", "state", "age", "expires in", "decision", "outcome")
_UNKNOWN = "-"


@click.group()
def transactions() -> None:
    """List, commit or abort the transactions that a dead job has left open.

    A job under exactly-once that dies may leave transactions open. In Kafka they hold back every read_committed reader
    of the topic. In PostgreSQL they hold locks, and slots of max_prepared_transactions. A start of the job ends them.
    These commands are for a job that will not start again.

    The journal in the job's checkpoint decides: a transaction of a decided batch can only be committed, any other only
    aborted. Without --yes nothing is changed.

    \b
    Examples:
      oncebench transactions list --checkpoint state/orders \\
        --output orders-checked --bootstrap-servers broker1:9092
      oncebench transactions abort --checkpoint state/orders --output orders --yes
    """


@dataclass(frozen=True)
class Request:
    """The options that name the job, and the form of the output."""

    checkpoint: Place | None
    sink: str | None
    sink_id: str | None
    output: str
    kafka: KafkaAccess | None
    as_json: bool


def _job_options(command: Callable[..., None], *, hide_sink: bool = False) -> Callable[..., None]:
    for option in (
        click.option("--checkpoint", type=CheckpointType(path_type=Path, file_okay=False), metavar="DIR",
                     help="The job's checkpoint, with its journal: a folder, or s3://bucket/folder."),
        click.option("--sink", metavar="NAME", hidden=hide_sink,
                     help="The job's sink, if its checkpoint is gone: kafka or postgres."),
        click.option("--sink-id", metavar="ID", hidden=hide_sink,
                     help="The job's sink_id, if its checkpoint is gone."),
        click.option("--output", required=True, metavar="NAME", help="The topic or table that the job writes."),
        kafka_options("Your Kafka, for a job that writes to it."),
        own_postgres_option,
        click.option("--json", "as_json", is_flag=True,
                     help="Print each transaction as one line of JSON instead of the table."),
    )[::-1]:  # fmt: skip
        command = option(command)
    return command


_yes_option = click.option("--yes", is_flag=True, help="Do it. Without this option nothing is changed.")


@transactions.command("list")
@_job_options
def list_open(**options: Any) -> None:
    """List the transactions that are open, with the decision about each.

    A decision is commit or abort, undecided (a start of the job writes the rows again), or unknown (no journal). A
    transaction is lost if the server has aborted it although it is decided: a start of the job writes its rows again.
    """
    request = Request(**options)
    with _opened(request) as left:
        found = left.look()
        _print(found, None, request.as_json)
        for step in _next_steps(found):
            click.echo(step, err=True)
        try:
            left.refuse_running()
        except RefusedStart as running:
            click.echo(f"note: {running}", err=True)


# Without the checkpoint every commit is refused. The options stay, so that the refusal gives the reason.
@transactions.command("commit", short_help="Commit decided transactions.")
@partial(_job_options, hide_sink=True)
@_yes_option
def commit(yes: bool, **options: Any) -> None:
    """Commit what the journal has decided to commit; the rest stays as it is.

    Start without --yes: it shows what would be committed. The exit code is 2 if no decision allows a commit. It is 1 if
    a decided transaction is lost, or if the server is still ending one or gave no answer.
    """
    _end(Request(**options), COMMIT, yes, accept_loss=False)


@transactions.command("abort", short_help="Abort undecided transactions.")
@_job_options
@_yes_option
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Abort although the checkpoint is gone. Rows of a batch that the job had decided to commit are lost for good.",
)
def abort(yes: bool, accept_loss: bool, **options: Any) -> None:
    """Abort what the journal has not decided to commit; the rest stays as it is.

    Start without --yes: it shows what would be aborted. A start of the job writes the rows of an aborted transaction
    again. Without the checkpoint nothing shows whether a batch is decided, so --accept-loss is needed.
    """
    request = Request(**options)
    if accept_loss and request.checkpoint is not None:
        raise UserError(
            "--accept-loss has no effect here. With --checkpoint the journal shows what can be aborted without a loss",
            exit_code=ExitCode.USAGE,
        )
    _end(request, ABORT, yes, accept_loss)


def _end(request: Request, asked: str, yes: bool, accept_loss: bool) -> None:
    with _opened(request) as left:
        left.refuse_running()
        found = left.look()
        if yes and any(each.why_not(asked, accept_loss) is None for each in found):
            ended = left.end(asked, accept_loss)
        else:
            ended = [Ended(each, each.why_not(asked, accept_loss) or f"would be {DONE[asked]}") for each in found]
    _print([each.judged for each in ended], [each.outcome for each in ended], request.as_json)
    may = [each for each in ended if each.outcome.endswith(DONE[asked])]
    if may and not yes:
        click.echo(f"nothing was changed: this was a dry run. With --yes they are {DONE[asked]}", err=True)
    for step in _next_steps([each.judged for each in ended if each not in may]):
        click.echo(step, err=True)
    if any(each.outcome == AGAIN or each.judged.left.state in (LOST, ENDING) for each in ended):
        sys.exit(ExitCode.ERROR)
    if ended and not may:
        sys.exit(ExitCode.USAGE)


def _next_steps(found: Sequence[Judged]) -> Iterator[str]:
    """Yields a line for each kind of transaction.

    The line has the number of transactions, and the command that ends them.
    """
    waiting = [each for each in found if each.left.state not in (LOST, ENDING)]
    for decision, step in _STEPS.items():
        count = sum(each.decision is decision for each in waiting)
        if count:
            yield f"{count} {decision}: {step}"


_STEPS: Mapping[Decision, str] = {
    Decision.COMMIT: "`oncebench transactions commit` makes the rows visible",
    Decision.ABORT: "`oncebench transactions abort` ends them",
    Decision.UNDECIDED: "`oncebench transactions abort` ends them, and a start of the job writes the rows again",
    Decision.UNKNOWN: "without the journal, only `oncebench transactions abort --accept-loss` ends them. Rows of a "
    "batch that the job had decided to commit are then lost for good. If a copy of the checkpoint exists, give "
    "--checkpoint instead",
}


@contextmanager
def _opened(request: Request) -> Iterator[LeftOpen]:
    kafka: Mapping[str, str] = {} if request.kafka is None else {"log_level": "2", **request.kafka.client}
    try:
        owner = _owner(request, kafka)
        if request.kafka is not None:
            external(request.kafka)
        with (
            kafka_must_answer(
                kafka.get("bootstrap.servers", ""),
                owner.settings.sink_id,
                str(owner.settings.output["output"]),
                again="call again",
                kept="What has ended stays ended",
            ),
            closing(LeftOpen(owner)) as left,
        ):
            yield left
    except RefusedStart as refused:
        raise UserError(str(refused), exit_code=ExitCode.USAGE) from None


def _owner(request: Request, kafka: Mapping[str, Any]) -> Owner:
    named = request.sink, request.sink_id
    if request.checkpoint is not None and not any(named):
        return owner_of_checkpoint(request.checkpoint, request.output, kafka)
    if request.checkpoint is None and request.sink and request.sink_id:
        return owner_of_sink_id(request.sink, request.sink_id, request.output, kafka)
    raise UserError(
        "give --checkpoint or, if the checkpoint is gone, both --sink and --sink-id", exit_code=ExitCode.USAGE
    )


def _print(found: Sequence[Judged], outcomes: Sequence[str] | None, as_json: bool) -> None:
    now = time.time()
    if as_json:
        for at, each in enumerate(found):
            more = {} if outcomes is None else {"outcome": outcomes[at]}
            click.echo(json.dumps(_fields(each, now) | more))
        return
    if not found:
        click.echo("no open transactions")
        return
    rows = [_HEADINGS[: len(_HEADINGS) - (outcomes is None)]]
    for at, each in enumerate(found):
        rows.append((*map(_text, _fields(each, now).values()), *(() if outcomes is None else (outcomes[at],))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _fields(judged: Judged, now: float) -> dict[str, Any]:
    left = judged.left
    return {
        "transaction": left.name,
        "batch": left.batch,
        "partitions": left.partitions or None,
        "generation": left.generation,
        "state": left.state,
        "age_s": None if left.began_at is None else round(now - left.began_at, 1),
        "expires_in_s": None if left.expires_at is None else round(left.expires_at - now, 1),
        "decision": str(judged.decision),
    }


def _text(value: object) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.0f} s" if isinstance(value, float) else str(value)
