"""Lists, commits and rolls back prepared transactions of a sink_id without the job.

A gid has the batch and the partition (`connection.Names.fresh_gid`). PostgreSQL keeps a prepared transaction for ever.

Promise: `take` takes a newer epoch and ends the sessions of older drivers. COMMIT PREPARED and ROLLBACK PREPARED name
one gid, which no other transaction ever has. What can go wrong: the role may only end its own transactions; the server
refuses the others, and nothing changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from oncebench.delivery.contract import Mark, SinkSettings
from oncebench.delivery.transactions.left import PREPARED, Left
from oncebench.sinks.postgres import tables
from oncebench.sinks.postgres.connection import Names, connect
from oncebench.sinks.postgres.fencing import end_older, of_another_role, sessions
from oncebench.sinks.postgres.starting.refusals import unusable

_PLACE = re.compile(r"(\d+):(\d+):[0-9a-f]+")


class PostgresTransactions:
    """See `oncebench.delivery.transactions.left.Transactions`."""

    def __init__(self, settings: SinkSettings) -> None:
        self._names = Names(settings.sink_id, 0, str(settings.output["output"]), settings.driver)
        self._names.check()
        # Not a name of the job's own sessions: two calls of this command do not disturb each other.
        self._application = f"oncebench.transactions.{settings.sink_id}"
        self._open: psycopg.Connection | None = None

    def identity(self) -> Mapping[str, str]:
        with self._connection() as connection:
            return tables.identity(connection, self._names.table)

    def look(self) -> list[Left]:
        with self._connection() as connection:
            found = connection.execute(
                "SELECT gid, extract(epoch FROM prepared)::float8 FROM pg_prepared_xacts "
                "WHERE database = current_database() AND starts_with(gid, %s) ORDER BY gid",
                (self._names.gid_prefix,),
            ).fetchall()
        return [self._left(gid, began) for gid, began in found]

    def _left(self, gid: str, began: float) -> Left:
        place = _PLACE.fullmatch(gid.removeprefix(self._names.gid_prefix))
        left = Left(gid, PREPARED, {"gid": gid}, began_at=began)
        return left if place is None else replace(left, batch=int(place[1]), partitions=(int(place[2]),))

    def name_of(self, prepared: Mapping[str, Any]) -> str:
        return str(prepared["gid"])

    def marks(self) -> Mapping[int, Mark]:
        with self._connection() as connection:
            try:
                return tables.newest_marks(connection, self._names.sink_id)
            except psycopg.errors.UndefinedTable:  # no job has ever started in this database
                return {}

    def users(self) -> list[str]:
        """See `Transactions.users`: every driver and every worker of a running job has a session."""
        with self._connection() as connection:
            return [described for _, _, described in sessions(connection, self._names)]

    def take(self, generation: int | None) -> None:
        """See `Transactions.take`: the server counts epochs itself."""
        del generation
        with self._connection() as connection:
            tables.make_tables(connection)
            self._names = replace(self._names, epoch=tables.next_epoch(connection, self._names.sink_id))
            end_older(connection, self._names)

    def commit(self, chosen: Sequence[Left]) -> list[str]:
        """See `Transactions.commit`.

        If a transaction is gone, its row of the ledger shows whether it was committed.
        """
        return [left.name for left in chosen if not self._end("COMMIT PREPARED {}", left) and not self._committed(left)]

    def abort(self, chosen: Sequence[Left]) -> None:
        for left in chosen:
            self._end("ROLLBACK PREPARED {}", left)

    def _end(self, statement: LiteralString, left: Left) -> bool:
        """Ends a prepared transaction; returns False if it is gone."""
        with self._connection() as connection:
            ending = sql.SQL(statement).format(sql.Literal(left.name))
            try:
                connection.execute(ending)
            except psycopg.errors.UndefinedObject:
                return False
            except psycopg.errors.InsufficientPrivilege as error:
                raise of_another_role(connection, left.name, ending) from error
            return True

    def _committed(self, left: Left) -> bool:
        assert left.batch is not None, "a decision names it"
        (partition,) = left.partitions
        with self._connection() as connection:
            return tables.in_ledger(connection, self._names.sink_id, partition, left.batch) is not None

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        """Yields the connection; an error of the server becomes one that names the next step."""
        try:
            if self._open is None or self._open.closed:
                self._open = connect(self._application)
            yield self._open
        except psycopg.Error as error:
            raise unusable(error, "Call again when it works: what has ended stays ended.") from error

    def close(self) -> None:
        if self._open is not None:
            self._open.close()


LEFT_OPEN = {"two-phase": PostgresTransactions}
