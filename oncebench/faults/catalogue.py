"""Every fault action by name, and where it can be injected.

An action is the part of a fault after the colon: `after-prepare:kill-broker`. To add an action, write an injection in
one of the modules of this package and add one entry here.

Promise: an impossible fault is refused, with the reason, before anything is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from oncebench.delivery.contract import AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.failpoints import KILL, POINTS, Fault, parse_fault
from oncebench.delivery.protocols import exactly_once_two_phase, native, protocol_of
from oncebench.errors import ExitCode, UserError, did_you_mean
from oncebench.faults import checkpoint, disk, link, process, server
from oncebench.faults.checkpoint import BATCHES_BACK, COMMITS, OFFSETS, damaging
from oncebench.faults.context import Injection
from oncebench.faults.replicas import one_broker, too_few, unclean_election
from oncebench.faults.replicas.roles import (
    GROUP_COORDINATOR,
    INPUT_LEADER,
    OUTPUT_LEADER,
    TRANSACTION_COORDINATOR,
    Role,
)
from oncebench.faults.server import KAFKA, POSTGRES
from oncebench.servers.small_disk import cannot_mount
from oncebench.sinks.suite import SuiteSink

# Points that a task passes, in a Python worker (for sinks that write in tasks).
TASK_POINTS = frozenset({"mid-write", "before-prepare", "after-prepare"})
# Points at which a batch is open: a start with another number of partitions would split that batch differently.
BATCH_POINTS = frozenset(POINTS) - {"after-commit-log"}
# What a fault requires of a sink that writes to Kafka: a transaction that is open at the point; a transaction that ends
# at the point or later; rows that Kafka acknowledges; rows at all.
OPEN, ENDED, SENT, WRITTEN = "open", "ended", "sent", "written"
# The requirement of each role of a broker.
ROLES: Mapping[Role, str | None] = {
    OUTPUT_LEADER: WRITTEN,
    INPUT_LEADER: None,
    TRANSACTION_COORDINATOR: ENDED,
    GROUP_COORDINATOR: ENDED,
}


@dataclass(frozen=True)
class FaultKind:
    """One action that can be injected at a failpoint.

    Attributes:
        name: the action, as a user types it after the colon of a fault.
        description: a few words for lists.
        inject: the suite's part of the action; None: the pipeline does the whole action itself.
        timed: whether the action takes a number of seconds.
        breaks: the server that the action breaks. The suite must have started that server.
        points: the failpoints at which the action makes sense.
        needs_workers: whether Python workers must write the rows.
        in_kafka: what a sink that writes to Kafka must have: OPEN, ENDED, SENT or WRITTEN.
        on_link: whether the action affects the connection to `breaks`, which the pipeline then reaches through a proxy.
        fills: the folder of the run whose disk the action fills. That folder is then a small disk of its own.
        starts_successor: whether a second pipeline works while the first one is stopped.
        on_executors: whether the pipeline must have executors besides its driver. It then gets two.
        replaces_checkpoint: whether the action puts another checkpoint in place of the run's.
        needs_replicas: whether the action takes one broker of several away. The run must have several.
        isolates: whether the action cuts one broker off from the others, which then reach each other through proxies.
        needs_direct_connection: whether the action finds the pipeline by its connections to `breaks`. A proxy hides
            those connections.
    """

    name: str
    description: str
    inject: Injection | None
    timed: bool = False
    breaks: str | None = None
    points: frozenset[str] = frozenset(POINTS)
    needs_workers: bool = False
    in_kafka: str | None = None
    on_link: bool = False
    fills: str | None = None
    starts_successor: bool = False
    on_executors: bool = False
    replaces_checkpoint: bool = False
    needs_direct_connection: bool = False
    needs_replicas: bool = False
    isolates: bool = False


FAULTS: Mapping[str, FaultKind] = {
    kind.name: kind
    for kind in (
        FaultKind(KILL, "SIGKILL for every process of the pipeline", None),
        FaultKind("stop", "stops the pipeline for SECONDS, then continues it", process.stop, timed=True),
        FaultKind("end", "clean stop (SIGTERM) of the pipeline, then a restart", process.end),
        FaultKind(
            "zombie",
            "starts a second pipeline while the first is stopped, then continues the first",
            process.zombie,
            starts_successor=True,
        ),
        FaultKind("outage", "kills the pipeline and restarts it SECONDS later", process.outage, timed=True),
        FaultKind(
            "crash-loop",
            f"kills the pipeline, then {process.LOOP} more times while it starts",
            process.crash_loop,
        ),
        FaultKind(
            "kill-worker",
            "SIGKILL for one Python worker",
            process.kill_worker,
            points=TASK_POINTS,
            needs_workers=True,
        ),
        FaultKind(
            "stop-worker",
            "stops one Python worker for SECONDS",
            process.stop_worker,
            timed=True,
            points=TASK_POINTS,
            needs_workers=True,
        ),
        FaultKind("kill-executor", "SIGKILL for the JVM of one executor", process.kill_executor, on_executors=True),
        FaultKind(
            "stop-executor",
            "stops the JVM of one executor for SECONDS",
            process.stop_executor,
            timed=True,
            on_executors=True,
        ),
        FaultKind(
            "repartition",
            "kills the pipeline and restarts it with one more partition",
            process.repartition,
            points=BATCH_POINTS,
        ),
        FaultKind("kill-broker", "SIGKILL for the Kafka broker, then a restart", server.kill_broker, breaks=KAFKA),
        FaultKind("bounce-broker", "clean restart of the Kafka broker", server.bounce_broker, breaks=KAFKA),
        FaultKind("stop-broker", "stops the Kafka broker for SECONDS", server.stop_broker, True, KAFKA),
        *(
            FaultKind(
                f"{name}-{role.name}",
                description.format(role.description),
                partial(inject, role=role),
                timed=timed,
                breaks=KAFKA,
                in_kafka=in_kafka,
                needs_replicas=True,
                isolates=isolates,
            )
            for role, in_kafka in ROLES.items()
            for name, description, inject, timed, isolates in (
                ("kill", "SIGKILL for {}, then a restart", one_broker.kill_leader, False, False),
                ("stop", "stops {} for SECONDS", one_broker.stop_leader, True, False),
                ("bounce", "clean restart of {}", one_broker.bounce_leader, False, False),
                ("isolate", "cuts {} off from the other brokers for SECONDS", one_broker.isolate_leader, True, True),
            )
        ),
        FaultKind(
            "rolling-restart",
            "clean restart of every Kafka broker, one after the other",
            one_broker.rolling_restart,
            breaks=KAFKA,
            needs_replicas=True,
        ),
        FaultKind(
            "refuse-writes",
            "SIGKILL for one Kafka broker for SECONDS, while each row needs every replica",
            too_few.refuse_writes,
            timed=True,
            breaks=KAFKA,
            in_kafka=WRITTEN,
            needs_replicas=True,
        ),
        FaultKind(
            "unclean-election",
            "lets a replica lead that lacks acknowledged rows: no guarantee survives it",
            unclean_election.unclean_election,
            breaks=KAFKA,
            in_kafka=WRITTEN,
            needs_replicas=True,
        ),
        FaultKind(
            "hijack",
            "another producer takes over the pipeline's transactional ids",
            server.hijack,
            breaks=KAFKA,
            in_kafka=OPEN,
        ),
        FaultKind(
            "late-commit",
            "delays the next EndTxn by SECONDS and closes its connection",
            link.late_commit,
            timed=True,
            breaks=KAFKA,
            in_kafka=ENDED,
            on_link=True,
        ),
        FaultKind(
            "lose-answer",
            "drops the response to the next EndTxn (or Produce)",
            link.lose_answer,
            breaks=KAFKA,
            in_kafka=SENT,
            on_link=True,
        ),
        FaultKind("cut-link", "cuts the pipeline off from Kafka for SECONDS", link.cut_link, True, KAFKA, on_link=True),
        FaultKind("kill-postgres", "SIGKILL for PostgreSQL, then a restart", server.kill_postgres, breaks=POSTGRES),
        FaultKind("bounce-postgres", "clean restart of PostgreSQL", server.bounce_postgres, breaks=POSTGRES),
        FaultKind("stop-postgres", "stops PostgreSQL for SECONDS", server.stop_postgres, True, POSTGRES),
        FaultKind(
            "kill-session",
            "SIGKILL for one session of PostgreSQL",
            server.kill_session,
            breaks=POSTGRES,
            needs_direct_connection=True,
        ),
        FaultKind(
            "stop-session",
            "stops one session of PostgreSQL for SECONDS",
            server.stop_session,
            timed=True,
            breaks=POSTGRES,
            needs_direct_connection=True,
        ),
        FaultKind(
            "cut-postgres-link",
            "cuts the pipeline off from PostgreSQL for SECONDS",
            link.cut_postgres_link,
            timed=True,
            breaks=POSTGRES,
            on_link=True,
        ),
        FaultKind(
            "lose-postgres-answer",
            "drops the response to the next COMMIT of PostgreSQL",
            link.lose_postgres_answer,
            breaks=POSTGRES,
            on_link=True,
        ),
        *(
            FaultKind(
                name,
                f"fills the disk of the {what} until the pipeline dies, SECONDS at most",
                partial(disk.fill_disk, folder=folder),
                timed=True,
                fills=folder,
            )
            for name, what, folder in (
                ("fill-checkpoint", "checkpoint", disk.CHECKPOINT),
                ("fill-output", "output", disk.OUTPUT),
            )
        ),
        FaultKind(
            "fill-broker",
            "fills the disk of the Kafka broker until it halts, SECONDS at most, then restarts it",
            disk.fill_broker_disk,
            timed=True,
            breaks=KAFKA,
            fills=disk.BROKER,
        ),
        *(
            FaultKind(
                f"{prefix}-{log}",
                f"kills the pipeline and {damage_text} the newest entry of Spark's {log_text}",
                damaging(partial(damage, log)),
                replaces_checkpoint=True,
            )
            for log, log_text in ((OFFSETS, "offset log"), (COMMITS, "commit log"))
            for prefix, damage_text, damage in (
                ("cut", "halves", checkpoint.cut_entry),
                ("empty", "empties", checkpoint.empty_entry),
                ("lose", "deletes", checkpoint.delete_entry),
            )
        ),
        FaultKind(
            "flip-state",
            "kills the pipeline and flips one bit in the largest state file of the last batch",
            damaging(checkpoint.flip_state_bit),
            replaces_checkpoint=True,
        ),
        FaultKind(
            "roll-back",
            f"kills the pipeline and restarts it on a checkpoint that is {BATCHES_BACK} batches old",
            checkpoint.roll_back,
            replaces_checkpoint=True,
        ),
        FaultKind(
            "lose-checkpoint",
            "kills the pipeline and deletes its checkpoint",
            damaging(checkpoint.delete_checkpoint),
            replaces_checkpoint=True,
        ),
    )
}


def kinds(texts: Iterable[str]) -> list[FaultKind]:
    """Returns the action of each fault specification."""
    return [FAULTS[parse_fault(text).action] for text in texts]


def why_not(fault: Fault, sink: SuiteSink, support: Support, ours: frozenset[str] | None = None) -> str | None:
    """Why a run of this sink under this guarantee cannot have this fault; None if it can.

    Args:
        ours: the servers that the suite starts for the run; None: all that the run needs.
    """
    return why_not_applicable(fault, sink, support) or why_not_here(fault, ours)


def why_not_applicable(fault: Fault, sink: SuiteSink, support: Support) -> str | None:
    """Why the fault has no target in a run of this sink and guarantee; None if it has one."""
    action = FAULTS[fault.action]
    kind = sink.kind
    needed = {KAFKA, *sink.traits.services}
    if fault.point not in action.points:
        return f"{fault.action} acts at: {', '.join(point for point in POINTS if point in action.points)}"
    protocol = protocol_of(kind, support)
    if action.starts_successor and sink.single_writer and fault.point in TASK_POINTS:
        return f"a stopped task of sink {kind.name} holds the lock of its database: no successor could write"
    if action.needs_workers and (kind.batch_atomic or protocol is native):
        return f"no worker passes {fault.point} there: {kind.name} {support.variant} writes from the driver"
    if action.in_kafka == SENT and (sink.transactional_ids is None or support.guarantee == AT_MOST_ONCE):
        return f"{kind.name} {support.guarantee} {support.variant} waits for no answer of Kafka's to its rows"
    if action.in_kafka == WRITTEN and sink.transactional_ids is None:
        return f"a run of sink {kind.name} has no output topic"
    if action.in_kafka in (OPEN, ENDED) and (sink.transactional_ids is None or support.guarantee != EXACTLY_ONCE):
        return f"{kind.name} {support.guarantee} {support.variant} holds no Kafka transactions"
    if action.in_kafka == OPEN and fault.point not in (POINTS if protocol is exactly_once_two_phase else TASK_POINTS):
        return f"{kind.name} {support.variant} has no transaction open at {fault.point}"
    if action.fills == disk.OUTPUT and not sink.writes_local_files:
        return f"a run of sink {kind.name} has no output folder"
    if action.breaks is not None and action.breaks not in needed:
        return f"a run of sink {kind.name} has no {action.breaks}"
    return None


def why_not_here(fault: Fault, ours: frozenset[str] | None = None) -> str | None:
    """Why the fault is impossible on this machine or with these servers; None if it is possible.

    Args:
        ours: the servers that the suite starts; None: all that a run needs.
    """
    action = FAULTS[fault.action]
    if action.fills is not None and (reason := cannot_mount()) is not None:
        return reason
    if action.breaks is not None and ours is not None and action.breaks not in ours:
        return f"the {action.breaks} of this run is not ours to break"
    return None


def why_not_together(fault: Fault, others: Sequence[Fault]) -> str | None:
    """Why the fault cannot share a run with these other faults; None if it can."""
    action = FAULTS[fault.action]
    for other in others:
        neighbour = FAULTS[other.action]
        if action.replaces_checkpoint and neighbour.fills == disk.CHECKPOINT:
            return (
                f"under {other} the checkpoint is a small disk, which cannot be replaced: use a separate run for each"
            )
        if action.needs_direct_connection and neighbour.on_link and neighbour.breaks == action.breaks:
            return (
                f"under {other} the pipeline reaches {action.breaks} through a proxy, so none of the sessions can be "
                "traced to the pipeline: use a separate run for each"
            )
    return None


def why_malformed(fault: Fault) -> str | None:
    """Returns the mistake in the text of a fault; None if the text is well formed."""
    action = FAULTS.get(fault.action)
    if action is None:
        meant = did_you_mean(fault.action, FAULTS)
        return f"unknown fault action {fault.action!r}{meant}; available: {', '.join(FAULTS)}"
    if action.timed != (fault.seconds is not None):
        needs = f"needs its seconds ({fault.action}:5)" if action.timed else "takes no seconds"
        return f"fault {fault}: {fault.action} {needs}"
    return None


def checked_fault(text: str) -> str:
    """The fault specification in its full form, with every default written out.

    Raises:
        UserError: the text is not a fault specification (exit code 2).
    """
    try:
        fault = parse_fault(text)
    except ValueError as error:
        raise UserError(str(error), exit_code=ExitCode.USAGE) from error
    if (wrong := why_malformed(fault)) is not None:
        raise UserError(wrong, exit_code=ExitCode.USAGE)
    return str(fault)
