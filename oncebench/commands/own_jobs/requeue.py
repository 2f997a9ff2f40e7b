"""`oncebench requeue`: sends rejected records back from the quarantine topic."""

from __future__ import annotations

import sys

import click

from oncebench.commands.shared.kafka import kafka_options, required
from oncebench.delivery.copies.letters import LEFT, Selection, group_of
from oncebench.delivery.copies.requeue import TO, Outcomes, Requeue
from oncebench.delivery.errors import RefusedStart
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.servers.kafka.external import external


@click.command()
@kafka_options("Addresses of your Kafka; required unless --kafka-conf has them.")
@click.option("--quarantine", metavar="TOPIC", required=True, help="The quarantine topic.")
@click.option("--reason", help="Send only records that were rejected for this reason [default: all].")
@click.option("--to", metavar="TOPIC", help="Send them to this topic [default: the topic that each came from].")
@click.option(
    "--group",
    metavar="NAME",
    help="Consumer group that marks what was sent. Each group sends a record once [default: <quarantine>.requeue].",
)
@click.option(
    "--leave-refused",
    is_flag=True,
    help="Leave copies that a topic's settings refuse, and send the others. Later calls of the group pass over them "
    "[default: stop at the first].",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
def requeue(
    kafka: KafkaAccess | None,
    quarantine: str,
    reason: str | None,
    to: str | None,
    group: str | None,
    leave_refused: bool,
    dry_run: bool,
) -> None:
    """Send rejected records back to the topic that they came from.

    Each record has its original key, value, headers and timestamp, and a header oncebench.requeued_from. Correct the
    cause first: a record that is rejected again comes back to the quarantine topic. Start with --dry-run. A group
    remembers what it has sent, so a second call sends only what came since. With another --group everything is sent
    again. A group belongs to one --reason and one --to.

    A copy that was cut, that lacks its headers, or that stands for a session that never ended is left. The exit code
    is then 1. If a topic refuses a copy, because it is too large for example, the call stops. Correct the topic's
    settings and call again, or give --leave-refused.

    \b
    Example:
      oncebench requeue --bootstrap-servers broker1:9092 --quarantine orders-bad --dry-run
    """
    reached = external(required(kafka))
    selection = Selection(quarantine, group or group_of(quarantine), reason, to)
    try:
        with Requeue(reached.access.client, selection) as call:
            outcomes = call.look()
            if not dry_run:
                outcomes = call.send(leave_refused=leave_refused)
    except RefusedStart as refused:
        raise UserError(str(refused), exit_code=ExitCode.USAGE) from None
    click.echo(_table(outcomes, "would be sent" if dry_run else "sent"))
    if dry_run:
        click.echo("nothing was sent: this was a dry run", err=True)
    if any(outcome.startswith(LEFT) for _, outcome in outcomes):
        sys.exit(ExitCode.ERROR)


def _table(outcomes: Outcomes, sent: str) -> str:
    if not outcomes:
        return "no copies"
    rows = [("reason", "copies", "outcome")]
    for (reason, outcome), copies in sorted(outcomes.items()):
        rows.append((reason, str(copies), f"{sent} {outcome}" if outcome.startswith(TO) else outcome))
    wide, counts = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{reason.ljust(wide)}  {copies.rjust(counts)}  {outcome}" for reason, copies, outcome in rows)
