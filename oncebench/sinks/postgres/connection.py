"""PostgreSQL: where it is, how this sink's things are called there, and how a connection to it is made.

Promise: the DSN comes from the environment variable ONCEBENCH_POSTGRES (what it leaves out, from libpq's own:
PGPASSWORD, PGPASSFILE, PGSERVICE, ...) and stands in no configuration, target or message; `redacted` and `error_text` leave
every password out. Each connection says in its application_name to which sink_id and epoch it belongs, and its COMMIT
waits for the disk, whatever role, database and server say of that, now or after a reload of their settings. What can
go wrong: a pooler in transaction mode between us and the server does not keep sessions; PREPARE TRANSACTION and
fencing need the server itself.
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
# What libpq takes that is secret; `passfile` is only the name of a file.
SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
HIDDEN = "***"
# libpq does not print passwords; this is for what may repeat one by chance. What is shorter stands in any sentence.
SHORTEST_SECRET = 4
_URIS = ("postgresql://", "postgres://")
CONNECT_LIMIT_S = 5  # for one address: a server that is there answers in milliseconds, far away and loaded in a second
# Rows are locked by a batch that is being written; a lock that is held for longer belongs to a transaction whose owner
# is paused, and waiting would not end.
LOCK_LIMIT_MS = 30_000
SILENCE_LIMIT_MS = 60_000  # a cut network is noticed after this, not after the two hours of TCP's keep-alive
# For all of the session, so that a reload of the server's settings does not change it either. `local`, `remote_write`
# and `remote_apply` wait for the server's own disk too, and say more of its standbys only: that is for its operator.
_WAITS = (
    "SELECT set_config('synchronous_commit', CASE asked WHEN 'off' THEN 'on' ELSE asked END, false) "
    "FROM current_setting('synchronous_commit') AS asked"
)
GID_BYTES = 199  # a gid must be shorter than 200 bytes


@dataclass(frozen=True)
class Names:
    """How things of this sink_id are called in the server. `epoch`: of the driver, counted by the server."""

    sink_id: str
    epoch: int
    table: str

    @property
    def application_prefix(self) -> str:
        """Every application_name of this sink_id starts with it. Names are cut at 63 bytes, so the id is hashed."""
        return f"oncebench.{hashlib.sha256(self.sink_id.encode()).hexdigest()[:24]}."

    @property
    def application(self) -> str:
        """The application_name of this driver and its workers."""
        return f"{self.application_prefix}{self.epoch}"

    def is_older(self, application: str) -> bool:
        """Whether a session of this sink_id belongs to an older epoch; a driver that has none yet has done nothing."""
        epoch = application.removeprefix(self.application_prefix)
        return epoch.isdecimal() and 0 < int(epoch) < self.epoch

    @property
    def gid_prefix(self) -> str:
        """Every prepared transaction of this sink_id starts with it: a sink_id has no colon."""
        return f"{self.sink_id}:"

    def fresh_gid(self, batch: int, partition: int) -> str:
        """A name for a prepared transaction that nobody has had before."""
        return f"{self.gid_prefix}{batch}:{partition}:{uuid.uuid4().hex}"

    def check(self) -> None:
        """Raises RefusedStart for a sink_id whose prepared transactions could not be named."""
        longest = self.fresh_gid(2**63 - 1, 2**31 - 1)
        if len(longest.encode()) > GID_BYTES or ":" in self.sink_id:
            raise RefusedStart(
                f"sink_id {self.sink_id!r} cannot begin the name of a prepared transaction (at most {GID_BYTES} bytes "
                f"in all, no colon): take one of at most {GID_BYTES - len(longest.encode()) + len(self.sink_id)} bytes"
            )


def dsn() -> str:
    """The DSN of this process.

    Raises:
        RefusedStart: there is none.
    """
    found = os.environ.get(VARIABLE)
    if not found:
        raise RefusedStart(
            f"the environment variable {VARIABLE} is not set: it must hold the DSN of the PostgreSQL server (on a "
            f"cluster also for the executors: spark.executorEnv.{VARIABLE})"
        )
    return found


def parts(text: str) -> Mapping[str, str]:
    """The parameters of a DSN, URI or key=value.

    Raises:
        ValueError: it is none; the message does not repeat it, for it may hold a password.
    """
    try:
        found = {name: str(value) for name, value in conninfo.conninfo_to_dict(text).items()}
    except psycopg.ProgrammingError:
        found = {}
    if found and text.startswith(_URIS):
        # libpq ends a password at the first `/` or `@`, and takes the rest of it for a host: that would be shown.
        authority, _, path = text.split("://", 1)[1].split("?", maxsplit=1)[0].partition("/")
        if "@" in path or authority.count("@") > 1:
            raise ValueError("not a DSN: in a URI's password write / as %2F and @ as %40")
    if found:
        return found
    raise ValueError("not a DSN that libpq understands; postgresql://user@host:5432/database, say")


def secrets(text: str) -> list[str]:
    """The secret values that a DSN holds."""
    return [value for name, value in parts(text).items() if name in SECRETS]


def redacted(text: str) -> str:
    """A DSN without its secrets, for people."""
    try:
        known = parts(text)
    except ValueError:
        return HIDDEN
    return conninfo.make_conninfo("", **{name: HIDDEN if name in SECRETS else value for name, value in known.items()})


def without_secrets(text: str) -> str:
    """What is left of a DSN that may be shown and given to --postgres."""
    return conninfo.make_conninfo("", **{name: value for name, value in parts(text).items() if name not in SECRETS})


def error_text(error: psycopg.Error, text: str | None = None) -> str:
    """What an error says, in one line, without any secret of the DSN."""
    said = error.diag.message_primary or " ".join(str(error).split())
    try:
        hidden = secrets(text if text is not None else os.environ.get(VARIABLE, ""))
    except ValueError:
        hidden = []
    for secret in (each for each in hidden if len(each) >= SHORTEST_SECRET):
        said = said.replace(secret, HIDDEN)
    return said


def connect(application: str, text: str | None = None) -> psycopg.Connection:
    """A connection in autocommit mode: transactions are begun and ended by statements of their own.

    COMMIT waits for the disk, unless a transaction says otherwise of itself.

    Raises:
        psycopg.OperationalError: nobody answers, or the login is refused.
        RefusedStart: no DSN is known, or it is none.
    """
    text = dsn() if text is None else text
    try:
        limit_s = parts(text).get("connect_timeout", str(CONNECT_LIMIT_S))
    except ValueError as error:
        raise RefusedStart(f"{VARIABLE} holds {error}") from None
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
    connection.execute(f"SET lock_timeout = {LOCK_LIMIT_MS}; SET standard_conforming_strings = on; {_WAITS}")
    return connection


def missing(connection: psycopg.Connection, error: psycopg.Error) -> bool:
    """Whether an error means that the connection is gone, and not that a statement was refused."""
    return connection.closed or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)
