"""Every nemesis by its name, and where it can act: the one table of what may stand behind the colon of a fault.

Promise: what is not possible is refused before anything is started, with the reason. To add one: an act in one of the
files beside this, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from oncebench.delivery.contract import AT_MOST_ONCE, EXACTLY_ONCE, Support
from oncebench.delivery.failpoints import KILL, POINTS, Fault
from oncebench.delivery.protocols import exactly_once_two_phase, native, protocol_of
from oncebench.faults import disk, link
from oncebench.faults import process as lives
from oncebench.faults import server as servers
from oncebench.faults.checkpoint import BACK, COMMITS, OFFSETS, act, cut, emptied, flipped, gone, lost, rolled_back
from oncebench.faults.context import Act
from oncebench.faults.server import KAFKA, POSTGRES
from oncebench.servers.small_disk import cannot_mount
from oncebench.sinks.suite import SuiteSink

# Points that a task passes, inside a Python worker (of a sink that writes by tasks).
OF_A_TASK = frozenset({"mid-write", "before-prepare", "after-prepare"})
# Points at which a batch is open: a start with another number of partitions would split it otherwise.
OF_A_BATCH = frozenset(POINTS) - {"after-commit-log"}
# Of a sink that writes to Kafka: a transaction that is open at the point; one that is ended then or later; rows that
# Kafka answers to.
OPEN, ENDED, SENT = "open", "ended", "sent"


@dataclass(frozen=True)
class Nemesis:
    """One thing that can be done at a failpoint.

    Attributes:
        name: behind the colon of a fault.
        told: in a few words, for lists.
        act: what it does; None: the pipeline does it itself.
        timed: whether it takes seconds.
        breaks: the server that it breaks, which must be one of ours.
        points: where it makes sense.
        in_workers: whether it needs workers that write.
        in_kafka: what it needs of a sink that writes to Kafka: OPEN, ENDED or SENT.
        on_link: whether it acts on the link to that server: the pipeline of such a run reaches it through a proxy.
        fills: the folder of a run that it fills, which is on a small disk in such a run.
        succeeded: whether a successor works while the pipeline stands still.
        on_executors: whether it needs executors beside the driver, which the pipeline has in such a run.
        replaces: whether another checkpoint takes the place of the one that is there.
        direct: whether it finds the pipeline by its own connections to the server that it breaks, which a proxy hides.
    """

    name: str
    told: str
    act: Act | None
    timed: bool = False
    breaks: str | None = None
    points: frozenset[str] = frozenset(POINTS)
    in_workers: bool = False
    in_kafka: str | None = None
    on_link: bool = False
    fills: str | None = None
    succeeded: bool = False
    on_executors: bool = False
    replaces: bool = False
    direct: bool = False


NEMESES: Mapping[str, Nemesis] = {
    each.name: each
    for each in (
        Nemesis(KILL, "SIGKILL for every process of the pipeline", None),
        Nemesis("stop", "the pipeline stands still for so many seconds", lives.stop, timed=True),
        Nemesis("end", "a clean stop (SIGTERM) and a start", lives.end),
        Nemesis("zombie", "taken for dead and succeeded; continued later", lives.zombie, succeeded=True),
        Nemesis("outage", "killed, and started again so many seconds later", lives.outage, timed=True),
        Nemesis("crash-loop", f"killed, and {lives.LOOP} times more while it starts", lives.crash_loop),
        Nemesis("kill-worker", "SIGKILL for one Python worker", lives.kill_worker, points=OF_A_TASK, in_workers=True),
        Nemesis(
            "stop-worker",
            "one Python worker stands still for so many seconds",
            lives.stop_worker,
            timed=True,
            points=OF_A_TASK,
            in_workers=True,
        ),
        Nemesis("kill-executor", "SIGKILL for the JVM of one executor", lives.kill_executor, on_executors=True),
        Nemesis(
            "stop-executor",
            "the JVM of one executor stands still for so many seconds",
            lives.stop_executor,
            timed=True,
            on_executors=True,
        ),
        Nemesis("repartition", "killed, started with one partition more", lives.repartition, points=OF_A_BATCH),
        Nemesis("kill-broker", "SIGKILL for the Kafka broker, and a start", servers.kill_broker, breaks=KAFKA),
        Nemesis("bounce-broker", "a clean stop of the Kafka broker, and a start", servers.bounce_broker, breaks=KAFKA),
        Nemesis("stop-broker", "the broker stands still for so many seconds", servers.stop_broker, True, KAFKA),
        Nemesis("hijack", "a stranger takes our transactional ids", servers.hijack, breaks=KAFKA, in_kafka=OPEN),
        Nemesis(
            "late-commit",
            "the next EndTxn comes so many seconds late, and its connection is lost",
            link.late_commit,
            timed=True,
            breaks=KAFKA,
            in_kafka=ENDED,
            on_link=True,
        ),
        Nemesis(
            "lose-answer",
            "the answer to the next EndTxn (or Produce) is lost",
            link.lose_answer,
            breaks=KAFKA,
            in_kafka=SENT,
            on_link=True,
        ),
        Nemesis("cut-link", "no way to Kafka for so many seconds", link.cut_link, True, KAFKA, on_link=True),
        Nemesis("kill-postgres", "SIGKILL for PostgreSQL, and a start", servers.kill_postgres, breaks=POSTGRES),
        Nemesis("bounce-postgres", "a clean stop of PostgreSQL, and a start", servers.bounce_postgres, breaks=POSTGRES),
        Nemesis("stop-postgres", "PostgreSQL stands still for so many seconds", servers.stop_postgres, True, POSTGRES),
        Nemesis(
            "kill-session",
            "SIGKILL for one session of PostgreSQL",
            servers.kill_session,
            breaks=POSTGRES,
            direct=True,
        ),
        Nemesis(
            "stop-session",
            "one session of PostgreSQL stands still for so many seconds",
            servers.stop_session,
            timed=True,
            breaks=POSTGRES,
            direct=True,
        ),
        Nemesis(
            "cut-postgres-link",
            "no way to PostgreSQL for so many seconds",
            link.cut_postgres_link,
            timed=True,
            breaks=POSTGRES,
            on_link=True,
        ),
        Nemesis(
            "lose-postgres-answer",
            "the answer to the next COMMIT of PostgreSQL is lost",
            link.lose_postgres_answer,
            breaks=POSTGRES,
            on_link=True,
        ),
        *(
            Nemesis(
                name,
                f"the disk of the {told} is full until the pipeline dies, so many seconds at most",
                partial(disk.full, folder=folder),
                timed=True,
                fills=folder,
            )
            for name, told, folder in (
                ("fill-checkpoint", "checkpoint", disk.CHECKPOINT),
                ("fill-output", "output", disk.OUTPUT),
            )
        ),
        Nemesis(
            "fill-broker",
            "the disk of the broker is full until it halts, so many seconds at most; then it is started again",
            disk.full_broker,
            timed=True,
            breaks=KAFKA,
            fills=disk.BROKER,
        ),
        *(
            Nemesis(
                f"{word}-{log}",
                f"killed; the newest entry of Spark's {log} {state}",
                act(partial(damage, log)),
                replaces=True,
            )
            for log in (OFFSETS, COMMITS)
            for word, state, damage in (
                ("cut", "is half there", cut),
                ("empty", "is empty", emptied),
                ("lose", "is gone", lost),
            )
        ),
        Nemesis(
            "flip-state",
            "killed; of what the last batch wrote to the state store one bit is another",
            act(flipped),
            replaces=True,
        ),
        Nemesis(
            "roll-back",
            f"killed {BACK} batches later, and started on the checkpoint of now",
            rolled_back,
            replaces=True,
        ),
        Nemesis("lose-checkpoint", "killed; the checkpoint is gone", act(gone), replaces=True),
    )
}


def why_not(fault: Fault, sink: SuiteSink, support: Support, ours: frozenset[str] | None = None) -> str | None:
    """Why a fault cannot be done to a run of this sink under this guarantee; None: it can.

    Args:
        ours: the servers that the suite starts for the run; None: all that it needs.
    """
    return pointless(fault, sink, support) or not_here(fault, ours)


def pointless(fault: Fault, sink: SuiteSink, support: Support) -> str | None:
    """Why a run of this sink under this guarantee has nothing that a fault could be done to, wherever it is run."""
    nemesis = NEMESES[fault.action]
    kind = sink.kind
    needed = {KAFKA, *sink.traits.services}
    if fault.point not in nemesis.points:
        return f"{fault.action} acts at: {', '.join(point for point in POINTS if point in nemesis.points)}"
    protocol = protocol_of(kind, support)
    if nemesis.succeeded and sink.single_writer and fault.point in OF_A_TASK:
        return f"a stopped task of sink {kind.name} holds the lock of its database: no successor could write"
    if nemesis.in_workers and (kind.batch_atomic or protocol is native):
        return f"no worker passes {fault.point} there: {kind.name} {support.variant} writes from the driver"
    if nemesis.in_kafka == SENT and (sink.transactional_ids is None or support.guarantee == AT_MOST_ONCE):
        return f"{kind.name} {support.guarantee} {support.variant} waits for no answer of Kafka's to its rows"
    if nemesis.in_kafka in (OPEN, ENDED) and (sink.transactional_ids is None or support.guarantee != EXACTLY_ONCE):
        return f"{kind.name} {support.guarantee} {support.variant} holds no Kafka transactions"
    if nemesis.in_kafka == OPEN and fault.point not in (POINTS if protocol is exactly_once_two_phase else OF_A_TASK):
        return f"{kind.name} {support.variant} has no transaction open at {fault.point}"
    if nemesis.fills == disk.OUTPUT and not sink.writes_local_files:
        return f"a run of sink {kind.name} has no output folder"
    if nemesis.breaks is not None and nemesis.breaks not in needed:
        return f"a run of sink {kind.name} has no {nemesis.breaks}"
    return None


def not_here(fault: Fault, ours: frozenset[str] | None = None) -> str | None:
    """Why a fault cannot be done on this machine, or with these servers of ours (None: all); None: it can."""
    nemesis = NEMESES[fault.action]
    if nemesis.fills is not None and (cannot := cannot_mount()) is not None:
        return cannot
    if nemesis.breaks is not None and ours is not None and nemesis.breaks not in ours:
        return f"the {nemesis.breaks} of this run is not ours to break"
    return None


def not_beside(fault: Fault, others: Sequence[Fault]) -> str | None:
    """Why a fault cannot be done in one run with these; None: it can."""
    nemesis = NEMESES[fault.action]
    for other in others:
        beside = NEMESES[other.action]
        if nemesis.replaces and beside.fills == disk.CHECKPOINT:
            return f"under {other} the checkpoint is a disk of its own, which can't be replaced: take a run for each"
        if nemesis.direct and beside.on_link and beside.breaks == nemesis.breaks:
            return (
                f"under {other} the pipeline reaches {nemesis.breaks} through a proxy, and none of the sessions there "
                "is its own: take a run for each"
            )
    return None


def unplaced(fault: Fault, master: str) -> str | None:
    """Why a fault cannot be done to a run on this Spark master; None: it can."""
    if NEMESES[fault.action].on_executors and not master.startswith("local"):
        return f"the executors of {master} are not ours to kill: leave --master out, and the run has two of its own"
    return None


def complaint(fault: Fault) -> str | None:
    """What is wrong with how a fault is said; None: nothing."""
    nemesis = NEMESES.get(fault.action)
    if nemesis is None:
        return f"unknown nemesis {fault.action!r}; they are: {', '.join(NEMESES)}"
    if nemesis.timed != (fault.seconds is not None):
        needs = f"needs its seconds ({fault.action}:5)" if nemesis.timed else "takes no seconds"
        return f"fault {fault}: {fault.action} {needs}"
    return None
