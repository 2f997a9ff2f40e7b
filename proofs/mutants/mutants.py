"""The mutants: delivery code and sinks with one wrong detail each.

Promise: the auditors find exactly the listed codes. The same run without the wrong detail has the codes of `otherwise`,
mostly none, so the detail is found and not the run's faults. `elsewhere` lists demonstrators, model variants and tests
that show the same anomaly, as `kind: name`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.delivery.decisions import DROP
from oncebench.delivery.protocols import at_least_once
from oncebench.record import Record
from oncebench.sinks.files.sink import FileSink
from oncebench.sinks.kafka.broken import taken_as_done, without_journal, without_marker
from proofs.mutants import histories
from proofs.mutants.delivery import (
    BeginsNewCheckpoint,
    CommitsFirst,
    CommitsWhenRead,
    CopiesNothing,
    EmitsUnfinishedSessions,
    RedistributesRows,
    RenumbersReplays,
    UsesTheClock,
    claimed_late,
    done_by_number,
    not_compared,
    returns_early,
)
from proofs.mutants.sinks import (
    FLIPPING,
    IgnoresFailures,
    InPlace,
    MarksLater,
    NamedAnew,
    NeverChecks,
    NeverForced,
    NotHidden,
    RemembersFew,
    RemovesNothing,
    RemovesTooMuch,
    cut_the_power,
    files_with,
    lose_what_is_prepared,
    opener,
    refuse_a_rename,
    shared,
    sqlite_under_a_new_name,
    sqlite_with,
    taking,
    uncommitted,
)
from proofs.mutants.small_run import Fault, Parts, Run, start_successor

TWO_PHASE = Parts("files-jsonl", EXACTLY_ONCE, "two-phase")
IDEMPOTENT = Parts("sqlite", EXACTLY_ONCE, "idempotent")
ACKNOWLEDGED = Parts("files-jsonl", AT_LEAST_ONCE, "acknowledged")
CLAIM = Parts("files-jsonl", AT_MOST_ONCE, "claim")


@dataclass(frozen=True)
class Mutant:
    """One wrong detail.

    Attributes:
        name: number of the mutant.
        wrong: the wrong detail.
        codes: the anomalies that both auditors must find.
        mutated: makes the record of a run with the detail, in an empty folder.
        sound: makes the record of the same run without the detail.
        otherwise: the anomalies of the sound run.
        guarantee: the guarantee that the run should keep.
        defence: our defence that is missing, if the detail is one.
        on_servers: real servers or the protocol model should also show the anomaly.
        elsewhere: where they do.
        where: the small run that contains the detail.
    """

    name: str
    wrong: str
    codes: str
    mutated: Callable[[Path], Record]
    sound: Callable[[Path], Record]
    otherwise: str = ""
    guarantee: str = EXACTLY_ONCE
    defence: str = ""
    on_servers: bool = False
    elsewhere: tuple[str, ...] = ()
    where: str = "rows of a log"


def _run(
    name: str,
    wrong: str,
    codes: str,
    sound: Parts,
    *faults: Fault,
    otherwise: str = "",
    elsewhere: tuple[str, ...] = (),
    defence: str = "",
    on_servers: bool = False,
    **detail: object,
) -> Mutant:
    """A mutant of a small run: the parts of `sound` with one detail replaced."""
    parts = replace(sound, **detail)  # type: ignore[arg-type]
    return Mutant(
        name,
        wrong,
        codes,
        lambda folder: Run(parts, faults, folder).to_the_end(),
        lambda folder: Run(sound, faults, folder).to_the_end(),
        otherwise,
        sound.guarantee,
        defence,
        on_servers,
        elsewhere,
        f"{sound.sink} {sound.variant}",
    )


def _history(name: str, wrong: str, codes: str, made: Callable[[], Record], **more: object) -> Mutant:
    return Mutant(name, wrong, codes, lambda _: made(), lambda _: histories.sound(), **more)  # type: ignore[arg-type]


DIES, GONE = Fault("after-commit"), Fault("after-commit-log")
LATE = Fault("before-prepare", start_successor)

MUTANTS = (
    _run("M01", "a task omits a row", "LOSS LOSTC TORN", TWO_PHASE,
         opens=files_with(taking(*range(7), *range(8, 40)))),
    _run("M02", "a task omits a session", "LOSS LOSTC", TWO_PHASE, opens=files_with(taking(*range(20, 40)))),
    _run("M03", "a batch enters Spark's commit log before the sink holds it", "LOSS", TWO_PHASE, Fault("before-decision"),
         spark=CommitsFirst, on_servers=True, elsewhere=("model: two-phase, Spark's commit log comes first",)),
    _run("M04", "a task writes a row twice", "DUP", TWO_PHASE, opens=files_with(taking(*range(40), 7))),
    _run("M05", "a replay does not look for a marker", "DUP", IDEMPOTENT, DIES, protocol=without_marker, on_servers=True,
         elsewhere=("demonstrator: broken-kafka/no-marker", "model: idempotent, no marker"), defence="marker"),
    _run("M06", "a replay with other rows per partition is not compared with the first run", "DUP LOSS LOSTC",
         replace(IDEMPOTENT, spark=RedistributesRows), Fault("before-prepare"), protocol=not_compared, on_servers=True,
         defence="comparison with the first run"),
    _run("M07", "a replay recognises only the newest ten rows", "DUP", IDEMPOTENT, DIES,
         protocol=without_marker, opens=sqlite_with(RemembersFew), on_servers=True),
    _run("M08", "a new checkpoint under an old name: every batch up to the marker's number counts as done", "LOSS",
         replace(IDEMPOTENT, spark=BeginsNewCheckpoint, config=lambda c, attempt: replace(c, checkpoint=c.checkpoint / str(attempt))),
         DIES, protocol=done_by_number, refuses_older_checkpoint=False, on_servers=True, otherwise="STALL",
         elsewhere=("demonstrator: broken-delta/reused-app-id",),
         defence="txnVersion of its own checkpoint"),
    _run("M09", "an unfinished session produces rows", "PHAN", TWO_PHASE, operator=EmitsUnfinishedSessions),
    _run("M10", "one bit of a row flips before it is written", "CORR", TWO_PHASE, opens=opener(FileSink, FLIPPING)),
    _run("M11", "prepared files are visible to readers", "INCO", TWO_PHASE, Fault("after-prepare"),
         opens=opener(NotHidden), on_servers=True, elsewhere=("demonstrator: broken-files/final-names",),
         defence="hidden until renamed"),
    _run("M12", "a task swaps two rows of a session", "REORD", TWO_PHASE,
         opens=files_with(taking(*range(4), 11, *range(5, 11), 4, *range(12, 40)))),
    _run("M13", "at-least-once is declared as exactly-once", "DUP", TWO_PHASE, DIES, protocol=at_least_once, on_servers=True,
         elsewhere=("demonstrator: broken-postgres/no-ledger", "model: at-least-once")),
    _run("M14", "the observer reads uncommitted rows", "INCO", TWO_PHASE, Fault("after-prepare"),
         watched_by=uncommitted),
    _run("M15", "offsets are stored apart from the rows: a replay has another batch number", "DUP",
         IDEMPOTENT, DIES, spark=RenumbersReplays, on_servers=True,
         elsewhere=("model: idempotent, a replay has another batch number",)),
    _run("M16", "each driver uses a name of its own: it finds no marker and fences no driver", "DUP", IDEMPOTENT, LATE,
         opens=sqlite_under_a_new_name, on_servers=True,
         elsewhere=("demonstrator: broken-kafka/no-fencing", "model: idempotent, no fencing"),
         defence="one name for all drivers"),
    _run("M17", "two pipelines share a name and fence each other forever", "STALL", IDEMPOTENT, opens=shared,
         on_servers=True),
    _run("M18", "offsets are committed as soon as the input is read", "LOSS", IDEMPOTENT, Fault("before-prepare"),
         spark=CommitsWhenRead, on_servers=True, elsewhere=("model: idempotent, Spark's commit log comes first",)),
    _run("M19", "the ledger's row is written in a second transaction", "DUP", IDEMPOTENT, Fault("after-prepare"),
         opens=sqlite_with(MarksLater), on_servers=True, elsewhere=("demonstrator: broken-postgres/no-ledger",),
         defence="ledger in the same transaction"),
    _run("M20", "a replay treats a decided batch as done and commits nothing", "LOSS ORPH", TWO_PHASE,
         Fault("after-decision"), protocol=taken_as_done, on_servers=True,
         elsewhere=("demonstrator: broken-kafka/abort-after-commit", "model: two-phase, abort after the decision"),
         defence="a replay finishes decided commits"),
    _run("M21", "a failed commit counts as done", "LOSS LOSTC ORPH", TWO_PHASE,
         Fault("after-decision", refuse_a_rename), opens=opener(IgnoresFailures), on_servers=True,
         elsewhere=("model: two-phase, an unanswered commit counts as done",)),
    _run("M22", "a file is written under its final name", "CORR INCO STALL", TWO_PHASE, Fault("after-prepare"),
         opens=opener(InPlace), on_servers=True, elsewhere=("demonstrator: broken-files/final-names",),
         defence="hidden until renamed"),
    _run("M23", "a file is renamed before fsync, and the power is cut", "INCO LOSS LOSTC",
         TWO_PHASE, Fault("after-commit-log", cut_the_power), opens=opener(NeverForced),
         defence="fsync before the rename"),
    _run("M24", "no decision is journalled, and each attempt uses a new file name", "DUP", TWO_PHASE, DIES,
         protocol=without_journal, opens=opener(NamedAnew), on_servers=True,
         elsewhere=("demonstrator: broken-kafka/no-journal", "model: two-phase, no journal"), defence="journal"),
    _run("M25", "a start removes the newest files as leftovers", "INCO LOSS LOSTC", TWO_PHASE, GONE,
         opens=opener(RemovesTooMuch), on_servers=True),
    _run("M26", "rows that are lost between decision and commit are dropped", "LOSS", TWO_PHASE,
         Fault("after-decision", lose_what_is_prepared), on_lost=DROP, on_servers=True,
         elsewhere=(
             "model: two-phase, lost transactions are dropped",
             "test: tests/integration/pipeline/test_late_and_misplaced.py::"
             "test_an_outage_beyond_the_transaction_timeout_is_rewritten_or_dropped_as_asked",
         ),
         defence="lost partitions are written again"),
    _run("M27", "a row contains the time of its production", "CORR DIV DUP", ACKNOWLEDGED, DIES, operator=UsesTheClock,
         on_servers=True, otherwise="DUP"),
    _run("M28", "a replay of a finished batch returns without draining its rows", "STALL", TWO_PHASE, DIES,
         protocol=returns_early, on_servers=True, defence="a replay drains its rows",
         elsewhere=(
             "test: tests/integration/pipeline/test_spark_traps.py::"
             "test_a_sink_that_skips_a_replayed_batch_stops_the_query_and_one_that_drains_it_goes_on",
         )),
    _run("M29", "at-most-once claims after it has written", "DUP", CLAIM, Fault("before-decision"),
         protocol=claimed_late, on_servers=True, elsewhere=("model: at-most-once, claimed after the write",),
         defence="claim before the write"),
    _history("M30", "a transaction is left open", "STALL-LSO", histories.left_open, on_servers=True,
             elsewhere=(
                 "test: tests/integration/observe/test_reader.py::"
                 "test_an_open_transaction_hides_later_records",
             )),
    _history("M31", "one row is lost and another is duplicated: the totals are right", "DUP LOSS TORN",
             histories.one_lost_one_duplicated),
    _history("M32", "one session is lost and another is invented: the totals are right", "LOSS PHAN",
             histories.one_session_lost_one_invented),
    _history("M33", "a producer is used again after an EndTxn that timed out", "DUP", histories.ended_late, on_servers=True,
             elsewhere=("model: two-phase, ids in doubt are used again",)),
    _history("M34", "two rows of two sessions have each other's keys: every id exists once", "CORR",
             histories.exchanged),
    _run("M35", "a rejected record is not copied to the quarantine topic", "QUAR", TWO_PHASE, quarantine=CopiesNothing),
    _run("M36", "a start does not remove leftovers of dead writers", "ORPH", TWO_PHASE, Fault("after-prepare"),
         opens=opener(RemovesNothing), defence="a start aborts leftovers"),
    _history("M37", "the ledger records an acknowledged event that is not in the topic", "SRC",
             histories.acknowledged_and_not_there),
    _run("M38", "a delayed task does not check for a newer driver", "DUP", IDEMPOTENT, LATE,
         opens=sqlite_with(NeverChecks), on_servers=True,
         elsewhere=(
             "demonstrator: broken-kafka/no-fencing", "model: idempotent, workers do not check for a newer generation",
         ),
         defence="fencing"),
    _history("M39", "a superseded driver writes after its successor", "STALE",
             histories.written_late, on_servers=True, elsewhere=("demonstrator: broken-kafka/no-fencing",)),
    _history("M40", "a committed reader sees aborted rows", "G1a", histories.visible_although_aborted),
    _history("M41", "a batch of an atomic sink becomes visible in parts", "TORNB", histories.visible_in_parts),
    _history("M42", "rows are partitioned by their number instead of their key", "SCAT", histories.dealt_out),
)  # fmt: skip
