"""One PostgreSQL of our own (18, from a wheel), on loopback, always reaped; or somebody else's, only used.

Promise: while `postgres` is open, ONCEBENCH_POSTGRES holds the DSN for this process and its children. If it does
already, that server is used, and never started or stopped. Ours listens on 127.0.0.1 alone, wants a password that is
shown to nobody, and is durable as shipped (fsync on). `kill()` is a real SIGKILL of it and all its sessions, and
`start()` brings it back with the same data.

What can go wrong: it does not come up (`UserError` with the last lines of its log), or the user's own cannot be reached
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
from oncebench.processes.child import Child
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.kafka.process import tail
from oncebench.servers.postgres_home import Home, home
from oncebench.servers.service import Service
from oncebench.sinks.postgres.connection import VARIABLE, connect, error_text, redacted, without_secrets

SETTINGS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # Java's driver knows none, and the path of a work dir may be too long for one
    "max_prepared_transactions": "128",  # as shipped 0; this is two for each of the most partitions of a run (64)
    "max_connections": "300",  # each partition has two Python workers, and driver and observer one each
    "track_commit_timestamp": "on",  # tells the reader when a row was committed
    "shared_buffers": "64MB",  # a run's tables fit many times; the rest of the memory is Spark's and Kafka's
    # A guess of our password takes for ever as it is (192 random bits): counting to 4096 would only make each
    # connection late, and Spark's JDBC writer makes one per task.
    "scram_iterations": "1",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_SAFETY = ("fsync", "synchronous_commit", "full_page_writes")
_USER = _DATABASE = "postgres"
_INIT_LIMIT_S = 120.0  # some 50 MB are written and synced: 2 s on an idle disk
_START_LIMIT_S = 60.0  # 0.3 s, and after a kill the replay of its log
_STOP_LIMIT_S = 30.0  # it writes a checkpoint
_POLL_S = 0.02
_STARTS = 3  # a free port can be taken by somebody else before the server has it
_TAKEN = "Address already in use"


class PostgresServer:
    """A server that the suite started, in a `Home`. Made by `start_postgres`."""

    def __init__(self, where: Home, log: Path) -> None:
        self.log = log
        self.data = where.folder / "data"
        self._where = where
        self._password = secrets.token_urlsafe(24)
        self._port = 0
        self._child: Child | None = None
        self._init()

    @property
    def dsn(self) -> str:
        """Where it is, with its password."""
        return f"postgresql://{_USER}:{self._password}@{LOOPBACK}:{self._port}/{_DATABASE}"

    @property
    def pid(self) -> int:
        """Pid of the postmaster; `UserError` if it does not run."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Start it and return when it answers, on the same port as before; `UserError` if it does not come up."""
        for attempt in range(1, _STARTS + 1):
            port = self._port or free_ports(1)[0]
            offset = self.log.stat().st_size
            self._child = self._run("PostgreSQL", [self._where.programs / "postgres", "-D", self.data, "-p", str(port)])
            if self._answers(port):
                self._port = port
                return
            self.kill()
            said = tail(self.log, offset)
            if self._port or _TAKEN not in said or attempt == _STARTS:
                raise UserError(f"PostgreSQL did not come up; the end of {self.log}:\n{said}")

    def kill(self) -> None:
        """SIGKILL for the postmaster and all its sessions: nothing is flushed. Returns when they are gone."""
        if self._child is None:
            return
        sessions: list[psutil.Process] = []
        if self._child.alive:
            self._child.freeze()  # so that it starts no session meanwhile
            sessions = self._sessions()
        self._child.kill_session()
        for each in sessions:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(sessions, _STOP_LIMIT_S)

    def pause(self) -> None:
        """SIGSTOP for the postmaster and all its sessions: connections stay open and nothing answers."""
        self._running().freeze()  # so that it starts no session meanwhile
        for each in self._sessions():
            with suppress(psutil.NoSuchProcess):
                each.suspend()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        for each in self._sessions():
            with suppress(psutil.NoSuchProcess):
                each.resume()
        self._running().thaw()

    def wait_until_recovered(self, before: Sequence[psutil.Process]) -> None:
        """Return when it answers again after one of its sessions was killed: it then ends `before`, all the processes
        that it had, and replays its log. `UserError` if it does not come back."""
        psutil.wait_procs(before, _START_LIMIT_S)  # until then it may still let somebody in
        if not self._answers(self._port):
            raise UserError(f"PostgreSQL did not come back; the end of {self.log}:\n{tail(self.log)}")

    def stop(self) -> None:
        """Shut it down in good order, whoever is connected; killed if that takes too long."""
        if self._child is not None:
            self._child.send(signal.SIGINT)  # SIGTERM would wait until all have gone
            self._child.wait(_STOP_LIMIT_S)
            self.kill()

    def _sessions(self) -> list[psutil.Process]:
        """The postmaster's processes; each is a Unix session of its own."""
        found: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(self._running().pid).children(recursive=True)
        return found

    def _init(self) -> None:
        """Makes the data folder."""
        password = self._where.folder / "password"
        password.touch(0o600)
        password.write_text(self._password)
        if self._where.user is not None:
            os.chown(password, *self._where.user)
        options = ["--auth=scram-sha-256", f"--username={_USER}", f"--pwfile={password}", "--encoding=UTF8"]
        # A locale of the machine's would make a run depend on it.
        options += ["--no-locale", *(f"--set={name}={value}" for name, value in SETTINGS.items())]
        with self._run("initdb", [self._where.programs / "initdb", "-D", self.data, *options]) as child:
            in_time = child.wait(_INIT_LIMIT_S)
        password.unlink()
        if not in_time or child.returncode != 0:
            raise UserError(f"initdb could not make {self.data}; the end of {self.log}:\n{tail(self.log)}")

    def _run(self, name: str, command: list[str | Path]) -> Child:
        # Nothing of our environment is its business, least of all PG* and what is secret.
        kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if key in os.environ}
        environment = {**kept, "LC_ALL": "C"}
        folder = self._where.folder
        return process.start(name, command, self.log, env=environment, cwd=folder, user=self._where.user)

    def _answers(self, port: int) -> bool:
        """Waits until it lets us in; False if it ends or takes too long."""
        assert self._child is not None, "it has just been started"
        login = f"postgresql://{_USER}:{self._password}@{LOOPBACK}:{port}/{_DATABASE}"
        deadline = time.monotonic() + _START_LIMIT_S
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
    """A server with its data in ``folder/postgres`` (see `postgres_home`) and its log in ``folder/logs``."""
    with ExitStack() as stack:
        server = PostgresServer(stack.enter_context(home(folder)), folder / "logs" / "postgres.log")
        stack.enter_context(server)
        server.start()
        yield server


def check_reachable(dsn: str) -> None:
    """Raises `MissingEnvironment` if no PostgreSQL lets us in there."""
    try:
        connect("oncebench.check", dsn).close()
    except RefusedStart as error:
        raise MissingEnvironment(f"{error}. Mend it, or unset it: then the suite starts a server of its own") from error
    except psycopg.OperationalError as error:
        raise MissingEnvironment(
            f"PostgreSQL at {redacted(dsn)} cannot be used ({error_text(error, dsn)}). Is it running, is that its address as "
            "seen from this machine, and is the password in PGPASSWORD, PGPASSFILE or "
            f"{VARIABLE}? Without --postgres and {VARIABLE} the suite starts a server of its own"
        ) from error


def what_is_safe() -> Mapping[str, str]:
    """What a COMMIT of ours waits for on the server that is open."""
    with closing(connect("oncebench.check")) as connection:
        rows = {name: connection.execute(f"SHOW {name}").fetchone() for name in _SAFETY}
    return {name: str(row[0]) for name, row in rows.items() if row is not None}


SERVICE = Service(
    VARIABLE, check_reachable, without_secrets, start_postgres, lambda server: str(server.dsn), what_is_safe
)
