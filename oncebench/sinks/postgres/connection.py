"""Connections to PostgreSQL: the DSN, this sink's names in the server, and safe messages.

Promise: the DSN comes from the environment variable ONCEBENCH_POSTGRES; missing parts come from libpq's own variables
(PGPASSWORD, PGPASSFILE, PGSERVICE, ...). It is never in a configuration, target or message: `redacted` and `error_text`
leave every password out. Each connection's application_name contains its sink_id and epoch. COMMIT waits for the disk,
whatever the settings of role, database and server are, also after a reload of these settings. No time-out of role,
database or server ends one of our statements or transactions: a COPY lasts as long as Spark computes a task's rows.
With `row_security = off`, a statement from which a policy would hide rows fails instead.

What can go wrong: a pooler in transaction mode between us and the server does not keep sessions. PREPARE TRANSACTION
and fencing need the server itself.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg import conninfo

from oncebench.delivery.errors import RefusedStart

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
GID_BYTES = 199  # a gid must be shorter than 200 bytes


@dataclass(frozen=True)
class Names:
    """Names of a sink_id's objects in the server.

    `epoch`: of the driver, counted by the server. `driver`: random name of its start.
    """

    sink_id: str
    epoch: int
    table: str
    driver: str = ""

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
        limit_s = parts(text).get("connect_timeout", str(CONNECT_LIMIT_S))
    except ValueError as error:
        raise RefusedStart(f"the value of {VARIABLE} is {error}") from None
    if not limit_s.isdecimal():
        raise RefusedStart(f"{VARIABLE} holds connect_timeout={limit_s}: it must be a whole number of seconds")
    connection = psycopg.connect(
        text,
        autocommit=True,
        application_name=application,
        connect_timeout=int(limit_s),
        tcp_user_timeout=SILENCE_LIMIT_MS,
        client_encoding="UTF8",
    )
    connection.execute(_NEVER, (list(TIME_OUTS),))  # first, because one of them may be short
    connection.execute(
        f"SET lock_timeout = {LOCK_LIMIT_MS}; SET standard_conforming_strings = on; SET row_security = off; {_WAITS}"
    )
    return connection


def missing(connection: psycopg.Connection, error: psycopg.Error) -> bool:
    """Whether an error means that the connection is gone, and not that a statement was refused."""
    return connection.closed or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)
