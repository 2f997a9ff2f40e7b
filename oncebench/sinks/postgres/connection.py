"""Connections to PostgreSQL: the DSN, this sink's names in the server, and safe messages.

Promise: the DSN comes from the environment variable ONCEBENCH_POSTGRES; missing parts come from libpq's own variables
(PGPASSWORD, PGPASSFILE, PGSERVICE, ...). It is never in a configuration, target or message: `redacted` and `error_text`
leave every password out. Each connection's application_name contains its sink_id and epoch. COMMIT waits for the disk,
whatever the settings of role, database and server are, also after a reload of these settings. No time-out of role,
database or server ends one of our statements or transactions: a COPY lasts as long as Spark computes a task's rows.
With `row_security = off`, a statement from which a policy would hide rows fails instead. A connection that is made
again while the job runs leads to the server and timeline of the job's start, or it is refused (`connect_again`).

What can go wrong: a pooler in transaction mode between us and the server does not keep sessions. PREPARE TRANSACTION
and fencing need the server itself.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import conninfo

from oncebench.delivery.errors import DeliveryFailed, RefusedStart

VARIABLE = "ONCEBENCH_POSTGRES"
# libpq takes from these what the DSN lacks.
LIBPQ = (
    "PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLMODE",
    "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY",
)  # fmt: skip
# Secret parameters of libpq; `passfile` is only the name of a file.
SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
HIDDEN = "***"
# libpq does not print passwords, but another text may contain one by chance. Shorter texts occur in any sentence.
SHORTEST_SECRET = 4
_EXAMPLE = "postgresql://user@host:5432/database"
_URIS = ("postgresql://", "postgres://")
CONNECT_LIMIT_S = 5  # per address: a running server answers in milliseconds, a distant and busy server within a second
# A batch locks rows while it is written. A lock that is held for longer belongs to a transaction of a paused process,
# and waiting would not end.
LOCK_LIMIT_MS = 30_000
SILENCE_LIMIT_MS = 60_000  # a cut network is noticed after this, not after the two hours of TCP's keep-alive
# Between two batches a connection is idle, and load balancers forget an idle one silently, some after 4 minutes.
# A probe each 30 s keeps it known, and three without an answer end it after the same 60 s.
_KEEP_ALIVE: Mapping[str, Any] = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
# Set for the session, so a reload of the server's settings does not change it. `local`, `remote_write` and
# `remote_apply` also wait for the server's own disk. They differ in the standbys only, which is the operator's choice.
_WAITS = (
    "SELECT set_config('synchronous_commit', CASE asked WHEN 'off' THEN 'on' ELSE asked END, false) "
    "FROM current_setting('synchronous_commit') AS asked"
)
# Time-outs of a statement, transaction or session; an older server lacks some of them.
TIME_OUTS = (
    "statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout",
)  # fmt: skip
_NEVER = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = ANY(%s)"
# The functions are open to every role by default. An operator may have closed them, and some providers lack the second.
_LINEAGE: tuple[LiteralString, ...] = (
    "SELECT system_identifier FROM pg_control_system()",
    "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)",
)
GID_BYTES = 199  # a gid must be shorter than 200 bytes


@dataclass(frozen=True)
class Names:
    """Names of a sink_id's objects in the server.

    `epoch`: of the driver, counted by the server. `driver`: random name of its start. `server`: the `lineage` of the
    server at its start; empty if connections are not compared with it.
    """

    sink_id: str
    epoch: int
    table: str
    driver: str = ""
    server: str = ""

    @property
    def application_prefix(self) -> str:
        """The prefix of this sink_id's application_names.

        The name contains a hash of the id, because PostgreSQL cuts names at 63 bytes.
        """
        return f"oncebench.{hashlib.sha256(self.sink_id.encode()).hexdigest()[:24]}."

    @property
    def application(self) -> str:
        """The application_name of this driver and its workers."""
        return f"{self.application_prefix}{self.epoch}"

    def is_older(self, application: str) -> bool:
        """Whether a session belongs to an older epoch.

        A driver without an epoch has done nothing yet.
        """
        epoch = application.removeprefix(self.application_prefix)
        return epoch.isdecimal() and 0 < int(epoch) < self.epoch

    @property
    def gid_prefix(self) -> str:
        """The prefix of this sink_id's prepared transactions. A sink_id has no colon."""
        return f"{self.sink_id}:"

    def fresh_gid(self, batch: int, partition: int) -> str:
        """Returns a new name for a prepared transaction."""
        return f"{self.gid_prefix}{batch}:{partition}:{uuid.uuid4().hex}"

    def check(self) -> None:
        """Raises RefusedStart for a sink_id that cannot begin the name of a prepared transaction."""
        longest = self.fresh_gid(2**63 - 1, 2**31 - 1)
        more = len(longest.encode()) - GID_BYTES
        if more > 0 or ":" in self.sink_id:
            raise RefusedStart(
                f"sink_id {self.sink_id!r} cannot begin the name of a prepared transaction (at most {GID_BYTES} bytes "
                f"in all, no colon). Take one without a colon, of at most {len(self.sink_id.encode()) - more} bytes."
            )


def dsn() -> str:
    """Returns the DSN of this process.

    Raises:
        RefusedStart: there is none.
    """
    found = os.environ.get(VARIABLE)
    if not found:
        raise RefusedStart(
            f"the environment variable {VARIABLE} is not set. It must hold the DSN of the PostgreSQL server, such as "
            f"{_EXAMPLE}. On a cluster set it also for the executors: spark.executorEnv.{VARIABLE}, and the password "
            "as spark.executorEnv.PGPASSWORD, in a spark-defaults.conf that only you can read."
        )
    return found


def parts(text: str) -> Mapping[str, str]:
    """Returns the parameters of a DSN, in URI or key=value form.

    Raises:
        ValueError: it is not a DSN. The message does not repeat it, because it may contain a password.
    """
    try:
        found = {name: str(value) for name, value in conninfo.conninfo_to_dict(text).items()}
    except psycopg.ProgrammingError:
        found = {}
    if found and text.startswith(_URIS):
        # libpq ends a password at the first `/` or `@` and takes the rest for a host, which messages would contain.
        authority, _, path = text.split("://", 1)[1].split("?", maxsplit=1)[0].partition("/")
        if "@" in path or authority.count("@") > 1:
            raise ValueError("not a DSN. In a URI's password write / as %2F and @ as %40")
    if found:
        return found
    raise ValueError(f"not a DSN that libpq understands. Write it like {_EXAMPLE}")


def secrets(text: str) -> list[str]:
    """Returns the secret values of a DSN."""
    return [value for name, value in parts(text).items() if name in SECRETS]


def redacted(text: str) -> str:
    """Returns a DSN with its secrets masked, for people."""
    try:
        known = parts(text)
    except ValueError:
        return HIDDEN
    return conninfo.make_conninfo("", **{name: HIDDEN if name in SECRETS else value for name, value in known.items()})


def without_secrets(text: str) -> str:
    """Returns a DSN without its secrets, which may be printed and passed to --postgres."""
    return conninfo.make_conninfo("", **{name: value for name, value in parts(text).items() if name not in SECRETS})


def error_text(error: psycopg.Error, text: str | None = None) -> str:
    """Returns an error's message in one line, without any secret of the DSN."""
    found = error.diag.message_primary or " ".join(str(error).split())
    try:
        hidden = secrets(text if text is not None else os.environ.get(VARIABLE, ""))
    except ValueError:
        hidden = []
    for secret in (each for each in hidden if len(each) >= SHORTEST_SECRET):
        found = found.replace(secret, HIDDEN)
    return found


def connect(application: str, text: str | None = None) -> psycopg.Connection:
    """Returns a connection in autocommit mode: statements begin and end transactions.

    COMMIT waits for the disk, unless a transaction sets something else for itself.

    Raises:
        psycopg.OperationalError: the server does not answer, or refuses the login.
        RefusedStart: there is no DSN, or it cannot be understood.
    """
    text = dsn() if text is None else text
    try:
        given = parts(text)
    except ValueError as error:
        raise RefusedStart(f"the value of {VARIABLE} is {error}") from None
    limit_s = given.get("connect_timeout", str(CONNECT_LIMIT_S))
    if not limit_s.isdecimal():
        raise RefusedStart(f"{VARIABLE} holds connect_timeout={limit_s}: it must be a whole number of seconds")
    connection = psycopg.connect(
        text,
        autocommit=True,
        application_name=application,
        connect_timeout=int(limit_s),
        tcp_user_timeout=SILENCE_LIMIT_MS,
        client_encoding="UTF8",
        **{name: value for name, value in _KEEP_ALIVE.items() if name not in given},
    )
    connection.execute(_NEVER, (list(TIME_OUTS),))  # first, because one of them may be short
    connection.execute(
        f"SET lock_timeout = {LOCK_LIMIT_MS}; SET standard_conforming_strings = on; SET row_security = off; {_WAITS}"
    )
    return connection


def connect_again(names: Names) -> psycopg.Connection:
    """Returns a new connection of a driver or worker to the server of the driver's start.

    A standby that takes over may lack the newest batches, and so does a server that is restored to an earlier time. A
    job that wrote on would hide this: a start compares only the newest marker.

    Raises:
        psycopg.OperationalError: see `connect`.
        psycopg.errors.ReadOnlySqlTransaction: the server is a standby, which may be promoted at any moment.
        DeliveryFailed: it is another server, or another timeline of the same one.
    """
    connection = connect(names.application)
    if names.server:
        try:
            found = lineage(connection)
            if _differs(names.server, found):
                raise DeliveryFailed(
                    f"PostgreSQL's system identifier or timeline has changed since the start (was {names.server}, now "
                    f"{found}): a standby took over, or it was restored or promoted again. This connection has written "
                    "nothing. Start again: two-phase and idempotent compare their markers then; other variants have "
                    "none, so look for missing rows yourself."
                )
        except BaseException:
            connection.close()
            raise
    return connection


def lineage(connection: psycopg.Connection) -> str:
    """Returns the server's system identifier and timeline, `A:B`.

    A part that the role may not read is empty.

    A promotion and a restore to a point in time begin a new timeline. A crash alone does not, but an HA manager such as
    Patroni may promote the same server again after it.

    Raises:
        psycopg.errors.ReadOnlySqlTransaction: the server is a standby.
        psycopg.OperationalError: the connection broke.
    """
    if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
        raise psycopg.errors.ReadOnlySqlTransaction("the server is a standby")
    return ":".join(_readable(connection, query) for query in _LINEAGE)


def _readable(connection: psycopg.Connection, query: LiteralString) -> str:
    """Returns a query's text; empty if this server lacks the function, or this role the right."""
    try:
        row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        if missing(connection, error):
            raise
        return ""
    return "" if row is None else str(row[0])


def _differs(was: str, found: str) -> bool:
    pairs = zip(was.split(":"), found.split(":"), strict=True)
    return any(before and now and before != now for before, now in pairs)


def missing(connection: psycopg.Connection, error: psycopg.Error) -> bool:
    """Whether an error means that the connection is gone, and not that a statement was refused."""
    return connection.closed or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)
