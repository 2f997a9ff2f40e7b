"""Ends the transactions that a dead job has left open, by the decisions in its journal.

Promise: looking changes nothing. Ending first refuses a job that shows a sign of life. It then takes a new generation
in the journal and in the sink, so a driver that sleeps can do nothing more, and only then reads the decisions on which
it acts. A call that is killed at any point may be repeated, and a start of the job may follow at any point.

Signs of life are the driver's process, if it is one of this machine; sessions in the sink; and transactions that begin
within WATCH_S. A job that shows none and still runs is stopped by the new generation. It loses and duplicates nothing,
and its message is that another driver was started.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oncebench.delivery.contract import SinkKind, SinkSettings
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Identity, Journal, look_into, open_journal
from oncebench.delivery.protocols import choose, exactly_once_two_phase, protocol_of
from oncebench.delivery.starts.drivers import refuse_newer_sink
from oncebench.delivery.starts.places import OUTPUT, Places
from oncebench.delivery.stores.choose import Place
from oncebench.delivery.transactions.alive import living_driver
from oncebench.delivery.transactions.decided import ABORT, AGAIN, COMMIT, Decision, Judged, judge
from oncebench.delivery.transactions.left import Left, Transactions
from oncebench.delivery.transactions.rights import refuse_unreadable
from oncebench.delivery.transactions.trace import note_ended
from oncebench.jobs.checkpoint import last_batch, newest_finished, open_batch
from oncebench.sinks.registry import find_kind

# A running job without a process here or a session in the sink shows by a transaction that begins meanwhile.
WATCH_S = 3.0
# Why most kinds of sinks leave no transaction open.
ONE_STEP = "a killed task leaves no transaction open, because each commit is one step"
# Outcomes of a transaction that was chosen.
DONE = {COMMIT: "committed", ABORT: "aborted"}


@dataclass(frozen=True)
class Owner:
    """The job whose transactions are looked at.

    Attributes:
        kind: of its sink.
        settings: of its sink.
        identity: in its checkpoint; None: the checkpoint is gone.
    """

    kind: SinkKind
    settings: SinkSettings
    identity: Identity | None = None


def owner_of_checkpoint(checkpoint: Place, output: str, kafka: Mapping[str, Any]) -> Owner:
    """Returns the job that a checkpoint belongs to.

    Args:
        checkpoint: its folder.
        output: the topic or the table that the job writes.
        kafka: librdkafka settings of the cluster; empty if the sink needs none.

    Raises:
        RefusedStart: there is no journal, or such a job leaves no transaction open.
    """
    try:
        identity, _ = look_into(checkpoint)
    except FileNotFoundError as error:
        raise RefusedStart(
            f"{checkpoint} is no checkpoint with a journal: {error.filename} is missing. Name the folder that the job "
            "has as its checkpoint."
        ) from None
    kind = _kind(identity.sink)
    if identity.variant not in kind.transactions:
        able = " or ".join(kind.transactions)
        raise RefusedStart(
            f"a job with sink {kind.name}, {identity.guarantee} and variant {identity.variant} leaves no transaction "
            f"open when it dies: only exactly-once by {able} does. There is nothing to commit or abort."
        )
    where = {"output": output}
    settings = SinkSettings(
        where, identity.sink_id, identity.partitions, checkpoint, kafka, variant=identity.variant
    )  # fmt: skip
    return Owner(kind, settings, identity)


def owner_of_sink_id(sink: str, sink_id: str, output: str, kafka: Mapping[str, Any]) -> Owner:
    """Returns a job whose checkpoint is gone; see `owner_of_checkpoint`."""
    kind = _kind(sink)
    variant = next(iter(kind.transactions))  # each opens the same transactions
    return Owner(kind, SinkSettings({"output": output}, sink_id, 0, Path(), kafka, variant=variant))


def _kind(sink: str) -> SinkKind:
    kind = find_kind(sink)
    if not kind.transactions:
        raise RefusedStart(
            f"sink {kind.name}: {kind.none_open or ONE_STEP}. There is nothing to list, commit or abort."
        )
    return kind


@dataclass(frozen=True)
class Ended:
    """A transaction, and the outcome of a commit or an abort."""

    judged: Judged
    outcome: str


class LeftOpen:
    """The transactions of one job.

    Args:
        owner: the job.

    Raises:
        RefusedStart: the output is not the one that the checkpoint has written, or there is none.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._sink: Transactions = owner.kind.transactions[owner.settings.variant](owner.settings)
        try:
            self._refuse_other_output()
        except BaseException:
            self._sink.close()
            raise

    def _refuse_other_output(self) -> None:
        owner = self._owner
        found = self._sink.identity()
        name = owner.settings.output["output"]
        if not found:
            raise RefusedStart(f"sink {owner.kind.name} finds no output {name!r}. Name the topic or table of the job.")
        other = "" if owner.identity is None else Places(self._journal.folder).differs(OUTPUT, found)
        if other:
            raise RefusedStart(
                f"output {name!r} is not the output that the checkpoint {owner.settings.checkpoint} has written "
                f"({other}). Name the right topic or table, and the address of its server."
            )

    @property
    def _journal(self) -> Journal:
        return look_into(self._owner.settings.checkpoint)[1]

    def look(self) -> list[Judged]:
        """Returns the transactions that are not ended, with their decisions. Changes nothing.

        Raises:
            RefusedStart: the journal is older than the output, so it may lack decisions.
        """
        return self._look(None if self._owner.identity is None else self._journal)

    def _look(self, journal: Journal | None) -> list[Judged]:
        found = self._sink.look()
        if journal is None:
            return judge(found, None, {}, self._sink.name_of)
        marks = self._sink.marks()
        newest = max((mark.batch for mark in marks.values()), default=-1)
        checkpoint = self._owner.settings.checkpoint
        refuse_newer_sink(newest, last_batch(checkpoint), self._owner.settings.sink_id, str(checkpoint))
        decided = journal.newest_decision()
        if self._decides and newest > (-1 if decided is None else decided):
            raise RefusedStart(
                f"the output holds batch {newest} of sink_id {self._owner.settings.sink_id!r}, and {journal.folder} "
                "has no decision about it: the journal is older, or another's. Name the newest checkpoint of the job."
            )
        judged = judge(found, journal.newest_prepared(newest_finished(checkpoint)), marks, self._sink.name_of)
        return [_in_batch(each, open_batch(checkpoint)) for each in judged]

    @property
    def _decides(self) -> bool:
        identity, kind = self._owner.identity, self._owner.kind
        assert identity is not None, "without a journal there are no decisions"
        return protocol_of(kind, choose(kind, identity.guarantee, identity.variant)) is exactly_once_two_phase

    def refuse_running(self) -> None:
        """Raises RefusedStart if the job shows a sign of life now."""
        process = None if self._owner.identity is None else living_driver(self._journal.folder)
        if process is not None:
            raise RefusedStart(
                f"the job still runs: {process} of this machine started it. Nothing was changed. Stop the job first; a "
                "job that can start again ends its transactions by itself."
            )
        users = self._sink.users()
        if users:
            raise RefusedStart(
                f"the job seems to run: it has {users[0]}{f' and {len(users) - 1} more' if users[1:] else ''}. Nothing "
                "was changed. Stop the job first. If its machine is gone, end its sessions with pg_terminate_backend."
            )

    def end(self, asked: str, accept_loss: bool = False) -> list[Ended]:
        """Commits or aborts what may be, and returns every transaction with its outcome.

        Args:
            asked: COMMIT or ABORT.
            accept_loss: see `Judged.why_not`.

        Raises:
            RefusedStart: the job runs, or could not read the journal after this user has written to it, or the sink
                or the journal has a newer generation.
            CommitUncertain, NoPostgres: the server gave no definite answer; call again.
        """
        self.refuse_running()
        self._watch()
        journal = self._take()
        found = self._look(journal)
        chosen = [each.left for each in found if each.why_not(asked, accept_loss) is None]
        lost: set[str] = set()
        if chosen and journal is not None:
            note_ended(journal, asked, chosen)
            journal.check_still_ours()
        if chosen and asked == COMMIT:
            lost = set(self._sink.commit(chosen))
        elif chosen:
            self._sink.abort(chosen)
        return [Ended(each, self._outcome(each, asked, accept_loss, lost)) for each in found]

    def _outcome(self, judged: Judged, asked: str, accept_loss: bool, lost: set[str]) -> str:
        if judged.left.name in lost:
            return AGAIN
        return judged.why_not(asked, accept_loss) or DONE[asked]

    def _watch(self) -> None:
        """Raises RefusedStart if a transaction begins within WATCH_S."""
        before = _begun(self._sink.look())
        time.sleep(WATCH_S)
        new = sorted(_begun(self._sink.look()) - before)
        if new:
            raise RefusedStart(
                f"the job seems to run: transaction {new[0][0]} began while this command looked. Nothing was changed. "
                "Stop the job first."
            )

    def _take(self) -> Journal | None:
        identity, settings = self._owner.identity, self._owner.settings
        if identity is None:
            self._sink.take(None)
            return None
        refuse_unreadable(self._journal.folder)
        journal = open_journal(settings.checkpoint, identity, settings.driver)
        self._sink.take(journal.generation)
        journal.check_still_ours()
        return journal

    def close(self) -> None:
        """Releases connections."""
        self._sink.close()


def _in_batch(judged: Judged, opened: int | None) -> Judged:
    """Returns a transaction with its batch.

    An undecided one belongs to the batch that Spark has planned and not finished: a start ends all others before it
    runs a batch.
    """
    if judged.left.batch is not None or judged.decision is not Decision.UNDECIDED:
        return judged
    return replace(judged, left=replace(judged.left, batch=opened))


def _begun(found: list[Left]) -> set[tuple[str, float | None]]:
    return {(left.name, left.began_at) for left in found}
