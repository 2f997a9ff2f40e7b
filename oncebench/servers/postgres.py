"""PostgreSQL: a server of our own (18, from a wheel) on loopback, or the user's own.

Promise: while the service is open, ONCEBENCH_POSTGRES has the DSN for this process and its children. If the user has
set it, that server is used, and never started or stopped. Our server listens on 127.0.0.1 only, requires a password
that is never printed, and has PostgreSQL's default durability (fsync on). `kill()` is a real SIGKILL for the server and
all its sessions. `start()` brings it back with the same data.

Failure modes: our server does not start (`UserError` with the end of its log), or the user's cannot be reached
(`MissingEnvironment`).
"""

import os
import secrets
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import psycopg

from oncebench.delivery.errors import RefusedStart
from oncebench.errors import MissingEnvironment, UserError
from oncebench.processes import child as process
from oncebench.processes.child import Child, tail
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.limits import SERVER_LIMIT_S
from oncebench.servers.postgres_certificate import why_refused
from oncebench.servers.postgres_home import Home, home
from oncebench.servers.service import Service
from oncebench.sinks.postgres.connection import VARIABLE, connect, error_text, parts, redacted, without_secrets

SETTINGS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # Java's driver has none, and the path of a work dir may be too long for one
    "max_prepared_transactions": "512",  # 0 by default; two per partition, at most 256 partitions
    "max_connections": "300",  # two Python workers per partition, driver and observer
    "track_commit_timestamp": "on",  # the reader uses it as the commit time of a row
    "shared_buffers": "64MB",  # more than a run's tables need; the rest of the memory is for Spark and Kafka
    # Our password has 192 random bits and cannot be guessed. 4096 iterations would only delay each connection, and
    # Spark's JDBC writer opens one per task.
    "scram_iterations": "1",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")
_USER = _DATABASE = "postgres"
_INIT_LIMIT_S = 120.0  # it writes and syncs 50 MB: 2 s on an idle disk
_STOP_LIMIT_S = 30.0  # it writes a checkpoint
_POLL_S = 0.02
_STARTS = 3  # another process may take a free port before the server does
_TAKEN = "Address already in use"
_REFUSED = "certificate verify failed"  # OpenSSL's text for a server's certificate


class PostgresServer:
    """A server that the suite started, in a `Home`. `start_postgres` makes it."""

    def __init__(self, home: Home, log: Path) -> None:
        self.log = log
        self.data = home.folder / "data"
        self._home = home
        self._password = secrets.token_urlsafe(24)
        self._port = 0
        self._child: Child | None = None
        self._init()

    @property
    def dsn(self) -> str:
        """The DSN of the server, with its password."""
        return f"postgresql://{_USER}:{self._password}@{LOOPBACK}:{self._port}/{_DATABASE}"

    @property
    def pid(self) -> int:
        """Pid of the postmaster; `UserError` if it does not run."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        child = self._child  # read once: another thread may end it meanwhile
        return child is not None and child.alive

    def start(self) -> None:
        """Starts it, on the same port after a restart, and returns when it answers.

        Raises `UserError` if it does not start.
        """
        for attempt in range(1, _STARTS + 1):
            port = self._port or free_ports(1)[0]
            offset = self.log.stat().st_size
            self._child = self._run("PostgreSQL", [self._home.programs / "postgres", "-D", self.data, "-p", str(port)])
            if self._answers(port):
                self._port = port
                return
            self.kill()
            output = tail(self.log, offset)
            if self._port or _TAKEN not in output or attempt == _STARTS:
                raise UserError(f"PostgreSQL did not start; the end of {self.log}:\n{output}")

    def kill(self) -> None:
        """SIGKILL for the postmaster and its sessions: nothing is flushed. Returns at their end."""
        if self._child is None:
            return
        sessions: list[psutil.Process] = []
        if self._child.alive:
            self._child.freeze()  # a frozen postmaster starts no session meanwhile
            sessions = self._sessions()
        self._child.kill_session()
        for each in sessions:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(sessions, _STOP_LIMIT_S)
        process.forget_ended()

    def pause(self) -> None:
        """SIGSTOP for the postmaster and its sessions: connections stay open, nothing answers."""
        self._running().freeze()  # a frozen postmaster starts no session meanwhile
        for each in self._sessions():
            with suppress(psutil.NoSuchProcess):
                process.suspend(each)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        for each in self._sessions():
            with suppress(psutil.NoSuchProcess):
                process.resume(each)
        process.forget_ended()
        self._running().thaw()

    def wait_until_recovered(self, before: Sequence[psutil.Process]) -> None:
        """Returns when the server answers again after one of its sessions was killed.

        The postmaster then ends all its processes and replays its log. Raises `UserError` if it does not come back.

        Args:
            before: the processes that the postmaster had before the kill.
        """
        psutil.wait_procs(before, SERVER_LIMIT_S)  # until they are gone it may still accept a login
        if not self._answers(self._port):
            raise UserError(f"PostgreSQL did not come back; the end of {self.log}:\n{tail(self.log)}")

    def stop(self) -> None:
        """Shuts it down cleanly, even with open sessions. Kills it if that takes too long."""
        if self._child is not None:
            self._child.send(signal.SIGINT)  # SIGTERM would wait for all sessions to end
            self._child.wait(_STOP_LIMIT_S)
            self.kill()

    def _sessions(self) -> list[psutil.Process]:
        """The postmaster's processes. Each has its own Unix session."""
        found: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(self._running().pid).children(recursive=True)
        return found

    def _init(self) -> None:
        """Creates the data folder."""
        password = self._home.folder / "password"
        options = ["--auth=scram-sha-256", f"--username={_USER}", f"--pwfile={password}", "--encoding=UTF8"]
        # The machine's locale would make runs differ between machines.
        options += ["--no-locale", *(f"--set={name}={value}" for name, value in SETTINGS.items())]
        try:
            password.touch(0o600)
            password.write_text(self._password)
            if self._home.user is not None:
                os.chown(password, *self._home.user)
            with self._run("initdb", [self._home.programs / "initdb", "-D", self.data, *options]) as child:
                in_time = child.wait(_INIT_LIMIT_S)
        finally:
            password.unlink(missing_ok=True)
        if not in_time or child.returncode != 0:
            raise UserError(f"initdb could not create {self.data}; the end of {self.log}:\n{tail(self.log)}")

    def _run(self, name: str, command: list[str | Path]) -> Child:
        # The server gets nothing else of our environment, in particular no PG* variables and no secrets.
        kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if key in os.environ}
        environment = {**kept, "LC_ALL": "C"}
        folder = self._home.folder
        return process.start(name, command, self.log, env=environment, cwd=folder, user=self._home.user)

    def _answers(self, port: int) -> bool:
        """Waits until a login succeeds. Returns False if the server ends or takes too long."""
        assert self._child is not None, "start() has just started it"
        login = f"postgresql://{_USER}:{self._password}@{LOOPBACK}:{port}/{_DATABASE}"
        deadline = time.monotonic() + SERVER_LIMIT_S
        while self._child.alive and time.monotonic() < deadline:
            try:
                connect("oncebench.start", login).close()
                return True
            except psycopg.OperationalError:
                time.sleep(_POLL_S)
        return False

    def _running(self) -> Child:
        return process.running(self._child, "PostgreSQL", self.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def start_postgres(folder: Path) -> Iterator[PostgresServer]:
    """A server with data in ``folder/postgres`` (see `postgres_home`), log in ``folder/logs``."""
    with ExitStack() as stack:
        server = PostgresServer(stack.enter_context(home(folder)), folder / "logs" / "postgres.log")
        stack.enter_context(server)
        server.start()
        yield server


def check_reachable(dsn: str) -> None:
    """Raises `MissingEnvironment` if a login at the DSN fails."""
    try:
        connect("oncebench.check", dsn).close()
    except RefusedStart as error:
        raise MissingEnvironment(f"{error}. Correct or unset it. Without it the suite starts its own server") from error
    except psycopg.OperationalError as error:
        text = error_text(error, dsn)
        if _REFUSED in text and (reason := why_refused(parts(dsn))):
            text = f"{text}: {reason}"
        raise MissingEnvironment(
            f"PostgreSQL at {redacted(dsn)} cannot be used ({text}). Check that it runs, that this machine can reach "
            f"that address, and that the password is in PGPASSWORD, PGPASSFILE or {VARIABLE}. "
            f"Without --postgres and {VARIABLE} the suite starts its own server"
        ) from error


def durability() -> Mapping[str, str]:
    """The settings of the open server that decide when a COMMIT is durable."""
    with closing(connect("oncebench.check")) as connection:
        rows = {name: connection.execute(f"SHOW {name}").fetchone() for name in _DURABILITY}
    return {name: str(row[0]) for name, row in rows.items() if row is not None}


SERVICE = Service(
    "postgres",
    VARIABLE,
    check_reachable,
    without_secrets,
    start_postgres,
    lambda server: str(server.dsn),
    durability,
    "--postgres",
)
