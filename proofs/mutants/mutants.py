"""The mutants: delivery code and sinks with one detail wrong, each with what both auditors must find and no more.

Promise: the same run without the wrong detail shows what stands in `otherwise`, mostly nothing, so that it is the
detail that is found and not what befell the run. `elsewhere` names what shows the same on real servers or in the model
of the protocols, as `kind: name`; empty where nothing does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from oncebench.record import Record
from oncebench.delivery.decisions import DROP
from oncebench.delivery.protocols import at_least_once
from oncebench.sinks.kafka.broken import taken_as_done, without_journal, without_marker
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.sinks.files.sink import FileSink
from proofs.mutants import histories as histories
from proofs.mutants.delivery import (
    BeginsAnew,
    CommitsByItself,
    CommitsFirst,
    DealsAnew,
    Forgets,
    GivesWhatIsThere,
    LooksAtTheClock,
    NamesAnew,
    claimed_late,
    done_by_number,
    not_compared,
    returns_early,
)
from proofs.mutants.sinks import (
    FLIPPING,
    Direct,
    MarksLater,
    NeverForced,
    NeverLooks,
    RemembersFew,
    Swallows,
    SweepsNothing,
    SweepsTooMuch,
    Unhidden,
    Unnamed,
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
from proofs.mutants.small_run import Harm, Parts, Run, succeed

TWO_PHASE = Parts("files-jsonl", EXACTLY_ONCE, "two-phase")
IDEMPOTENT = Parts("sqlite", EXACTLY_ONCE, "idempotent")
ACKNOWLEDGED = Parts("files-jsonl", AT_LEAST_ONCE, "acknowledged")
CLAIM = Parts("files-jsonl", AT_MOST_ONCE, "claim")


@dataclass(frozen=True)
class Mutant:
    """One wrong detail.

    Attributes:
        name: of the catalogue that the suite was planned with; those from M34 on were added.
        wrong: what it does wrong.
        codes: what both auditors must find.
        shown: makes the record of a run with it, in an empty folder.
        sound: makes the record of the same run without it.
        otherwise: the codes of that.
        guarantee: which the run was to keep.
        defence: what of ours is missing, if the detail is one of our defences.
        live: it is planned to be made on real servers as well.
        elsewhere: where it is shown there, or in the model of the protocols.
        where: the run that it is made in.
    """

    name: str
    wrong: str
    codes: str
    shown: Callable[[Path], Record]
    sound: Callable[[Path], Record]
    otherwise: str = ""
    guarantee: str = EXACTLY_ONCE
    defence: str = ""
    live: bool = False
    elsewhere: tuple[str, ...] = ()
    where: str = "a log's rows"


def _run(
    name: str,
    wrong: str,
    codes: str,
    sound: Parts,
    *harms: Harm,
    otherwise: str = "",
    elsewhere: tuple[str, ...] = (),
    defence: str = "",
    live: bool = False,
    **detail: object,
) -> Mutant:
    """A mutant of a small run of `sound`: the same parts but for one detail."""
    parts = replace(sound, **detail)  # type: ignore[arg-type]
    return Mutant(
        name,
        wrong,
        codes,
        lambda folder: Run(parts, harms, folder).to_the_end(),
        lambda folder: Run(sound, harms, folder).to_the_end(),
        otherwise,
        sound.guarantee,
        defence,
        live,
        elsewhere,
        f"{sound.sink} {sound.variant}",
    )


def _history(name: str, wrong: str, codes: str, made: Callable[[], Record], **more: object) -> Mutant:
    return Mutant(name, wrong, codes, lambda _: made(), lambda _: histories.sound(), **more)  # type: ignore[arg-type]


DIES, GONE = Harm("after-commit"), Harm("after-commit-log")
LATE = Harm("before-prepare", succeed)

MUTANTS = (
    _run("M01", "a task leaves out a row", "LOSS LOSTC TORN", TWO_PHASE,
         opens=files_with(taking(*range(7), *range(8, 40)))),
    _run("M02", "a task leaves out a session", "LOSS LOSTC", TWO_PHASE, opens=files_with(taking(*range(20, 40)))),
    _run("M03", "Spark's commit log has a batch before the sink has it", "LOSS", TWO_PHASE, Harm("before-decision"),
         spark=CommitsFirst, live=True, elsewhere=("model: two-phase, Spark's commit log comes first",)),
    _run("M04", "a task writes a row twice", "DUP", TWO_PHASE, opens=files_with(taking(*range(40), 7))),
    _run("M05", "a replay looks for no marker", "DUP", IDEMPOTENT, DIES, protocol=without_marker, live=True,
         elsewhere=("demonstrator: broken-kafka/no-marker", "model: idempotent, no marker"), defence="marker"),
    _run("M06", "a replay whose rows are dealt out otherwise is not compared with the first run", "DUP LOSS LOSTC",
         replace(IDEMPOTENT, spark=DealsAnew), Harm("before-prepare"), protocol=not_compared, live=True,
         defence="comparison with the first run"),
    _run("M07", "only the newest ten rows are known when a batch is written again", "DUP", IDEMPOTENT, DIES,
         protocol=without_marker, opens=sqlite_with(RemembersFew), live=True),
    _run("M08", "a new checkpoint under an old name: every number up to the marker's is taken as done", "LOSS",
         replace(IDEMPOTENT, spark=BeginsAnew, config=lambda c, life: replace(c, checkpoint=c.checkpoint / str(life))),
         DIES, protocol=done_by_number, refuses_older_checkpoint=False, live=True, otherwise="STALL",
         elsewhere=("demonstrator: broken-delta/reused-app-id",),
         defence="txnVersion of its own checkpoint"),
    _run("M09", "a session that has not ended gives rows", "PHAN", TWO_PHASE, operator=GivesWhatIsThere),
    _run("M10", "a bit of a row flips on its way into the file", "CORR", TWO_PHASE, opens=opener(FileSink, FLIPPING)),
    _run("M11", "prepared files stand where readers look", "INCO", TWO_PHASE, Harm("after-prepare"),
         opens=opener(Unhidden), live=True, elsewhere=("demonstrator: broken-files/final-names",),
         defence="hidden until renamed"),
    _run("M12", "a task swaps two rows of a session", "REORD", TWO_PHASE,
         opens=files_with(taking(*range(4), 11, *range(5, 11), 4, *range(12, 40)))),
    _run("M13", "write and wait, called exactly-once", "DUP", TWO_PHASE, DIES, protocol=at_least_once, live=True,
         elsewhere=("demonstrator: broken-postgres/no-ledger", "model: at-least-once")),
    _run("M14", "the observer is shown what is not committed", "INCO", TWO_PHASE, Harm("after-prepare"),
         watched_by=uncommitted),
    _run("M15", "positions are kept apart from the rows: a batch that is run again has another number", "DUP",
         IDEMPOTENT, DIES, spark=NamesAnew, live=True,
         elsewhere=("model: idempotent, a batch that is run again has another number",)),
    _run("M16", "each driver has a name of its own: it finds no marker and fences nobody", "DUP", IDEMPOTENT, LATE,
         opens=sqlite_under_a_new_name, live=True,
         elsewhere=("demonstrator: broken-kafka/no-fencing", "model: idempotent, no fencing"),
         defence="one name for every driver"),
    _run("M17", "two pipelines share a name and fence each other for ever", "STALL", IDEMPOTENT, opens=shared,
         live=True),
    _run("M18", "positions are committed as soon as the input was read", "LOSS", IDEMPOTENT, Harm("before-prepare"),
         spark=CommitsByItself, live=True, elsewhere=("model: idempotent, Spark's commit log comes first",)),
    _run("M19", "the ledger's row comes in a second transaction", "DUP", IDEMPOTENT, Harm("after-prepare"),
         opens=sqlite_with(MarksLater), live=True, elsewhere=("demonstrator: broken-postgres/no-ledger",),
         defence="ledger in the same transaction"),
    _run("M20", "a replay takes what was decided as done and commits nothing", "LOSS ORPH", TWO_PHASE,
         Harm("after-decision"), protocol=taken_as_done, live=True,
         elsewhere=("demonstrator: broken-kafka/abort-after-commit", "model: two-phase, abort after the decision"),
         defence="a replay finishes what was decided"),
    _run("M21", "a commit that fails is taken for made", "LOSS LOSTC ORPH", TWO_PHASE,
         Harm("after-decision", refuse_a_rename), opens=opener(Swallows), live=True,
         elsewhere=("model: two-phase, a commit without an answer is taken for made",)),
    _run("M22", "a file is written under its final name", "CORR INCO STALL", TWO_PHASE, Harm("after-prepare"),
         opens=opener(Direct), live=True, elsewhere=("demonstrator: broken-files/final-names",),
         defence="hidden until renamed"),
    _run("M23", "a file is renamed before it was forced to the disk, and the power is cut", "INCO LOSS LOSTC",
         TWO_PHASE, Harm("after-commit-log", cut_the_power), opens=opener(NeverForced),
         defence="fsync before the rename"),
    _run("M24", "no decision in a journal, and a new name for each attempt", "DUP", TWO_PHASE, DIES,
         protocol=without_journal, opens=opener(Unnamed), live=True,
         elsewhere=("demonstrator: broken-kafka/no-journal", "model: two-phase, no journal"), defence="journal"),
    _run("M25", "a start takes the newest files for leftovers", "INCO LOSS LOSTC", TWO_PHASE, GONE,
         opens=opener(SweepsTooMuch), live=True),
    _run("M26", "what is lost between decision and commit is dropped", "LOSS", TWO_PHASE,
         Harm("after-decision", lose_what_is_prepared), on_lost=DROP, live=True,
         elsewhere=(
             "model: two-phase, lost transactions are dropped",
             "test: tests/integration/pipeline/test_late_and_misplaced.py::"
             "test_an_outage_beyond_the_transaction_timeout_is_rewritten_or_dropped_as_asked",
         ),
         defence="lost partitions are written again"),
    _run("M27", "a row tells when it was made", "CORR DIV DUP", ACKNOWLEDGED, DIES, operator=LooksAtTheClock,
         live=True, otherwise="DUP"),
    _run("M28", "a replay of what is done returns without using up its rows", "STALL", TWO_PHASE, DIES,
         protocol=returns_early, live=True, defence="rows are always used up",
         elsewhere=(
             "test: tests/integration/pipeline/test_spark_traps.py::"
             "test_a_sink_that_skips_a_replayed_batch_stops_the_query_and_one_that_drains_it_goes_on",
         )),
    _run("M29", "at-most-once that claims after it has written", "DUP", CLAIM, Harm("before-decision"),
         protocol=claimed_late, live=True, elsewhere=("model: at-most-once, claimed after the write",),
         defence="claim before the write"),
    _history("M30", "a transaction is left open", "STALL-LSO", histories.left_open, live=True,
             elsewhere=(
                 "test: tests/integration/run/test_observer_reader.py::"
                 "test_an_open_transaction_hides_what_stands_above_it",
             )),
    _history("M31", "one row lost, another doubled: the totals are right", "DUP LOSS TORN",
             histories.one_lost_one_doubled),
    _history("M32", "one session lost, another invented: the totals are right", "LOSS PHAN",
             histories.one_session_lost_one_invented),
    _history("M33", "a producer is used again after an EndTxn that timed out", "DUP", histories.ended_late, live=True,
             elsewhere=("model: two-phase, ids in doubt are used again",)),
    _history("M34", "two rows of two sessions under each other's keys: every id is there once", "CORR",
             histories.exchanged),
    _run("M35", "a record that was set aside is copied nowhere", "QUAR", TWO_PHASE, quarantine=Forgets),
    _run("M36", "a start leaves what dead writers left", "ORPH", TWO_PHASE, Harm("after-prepare"),
         opens=opener(SweepsNothing), defence="a start aborts"),
    _history("M37", "the load says that Kafka has taken an event which is not in the topic", "SRC",
             histories.acknowledged_and_not_there),
    _run("M38", "a task that wakes up late does not look for a younger driver", "DUP", IDEMPOTENT, LATE,
         opens=sqlite_with(NeverLooks), live=True,
         elsewhere=(
             "demonstrator: broken-kafka/no-fencing", "model: idempotent, workers look for no younger generation",
         ),
         defence="fencing"),
    _history("M39", "a driver that was succeeded writes on, behind its successor's rows", "STALE",
             histories.written_late, live=True, elsewhere=("demonstrator: broken-kafka/no-fencing",)),
    _history("M40", "a committed reader is shown what was aborted", "G1a", histories.shown_although_aborted),
    _history("M41", "a batch of a sink that shows it in one step is seen in parts", "TORNB", histories.shown_in_parts),
    _history("M42", "rows go to partitions by their number and not by their key", "SCAT", histories.dealt_out),
)  # fmt: skip
