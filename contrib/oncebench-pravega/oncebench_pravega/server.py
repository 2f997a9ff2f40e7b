"""Pravega: a server of our own (0.13.0, all in one JVM), or the user's own.

Promise: while the service is open, ONCEBENCH_PRAVEGA has the controller's address for this process and its children. If
the user has set it, that server is used, and never started or stopped. Our server serves streams and transactions when
`start_pravega` returns.

Our server keeps everything in memory, so every stream ends with it. It cannot be used to test the death of a server.

Security: its segment store and ZooKeeper listen on 127.0.0.1. Its controller has no such setting and listens on every
address of the machine. Whoever reaches that port can create and delete streams and end transactions, but can neither
read nor write rows.

Failure modes: our server does not start (`UserError` with the end of its log), or the user's does not answer
(`MissingEnvironment`).
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from oncebench.disk_errors import disk_errors
from oncebench.downloads.java import Java, find_java
from oncebench.downloads.maven import jars
from oncebench.errors import MissingEnvironment, UserError
from oncebench.processes import child
from oncebench.processes.child import Child, tail
from oncebench.processes.language import in_english
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.servers.service import Service
from oncebench_pravega.controller import VARIABLE, Controller, ControllerError, Stream

BUNDLE = "pravega-server"
_START_LIMIT_S = 90.0  # 5 s on an idle machine, and many times longer while Spark uses every core
_STOP_LIMIT_S = 20.0
_POLL_S = 0.1
_STARTS = 3  # another process may take a free port before the server does
_TAKEN = ("Address already in use", "BindException")
_PROBE = Stream("oncebench", "started")
_PROBE_LEASE_MS = 10_000
_MAIN = "io.pravega.local.LocalPravegaEmulator"
_FLAGS = (
    "-Xmx1g",  # enough for all streams of a run
    "-XX:MaxDirectMemorySize=1g",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:TieredStopAtLevel=1",  # as for the Kafka broker: runs are short
    "-Djava.awt.headless=true",
    # Netty's and Pravega's buffers are allocated through classes that Java 17 keeps to itself.
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "java.lang")),
    "-Dpravegaservice.storage.impl.name=INMEMORY",  # the default needs HDFS classes
    f"-Dpravegaservice.service.listener.host.nameOrIp={LOOPBACK}",
)
_LOGGING = """<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %m \\(%logger{0}\\)%n</pattern></encoder></appender>
<root level="warn"><appender-ref ref="out"/></root>
</configuration>
"""


class PravegaServer:
    """A server that the suite started, with its files in `folder`. `start_pravega` makes it."""

    def __init__(self, folder: Path, log: Path, java: Java) -> None:
        self.log = log
        self._folder, self._java = folder, java
        self._child: Child | None = None
        self.address = ""

    @property
    def pid(self) -> int:
        """Pid of the JVM; `UserError` if it does not run."""
        return child.running(self._child, "Pravega", self.log).pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Starts it and returns when it serves. Raises `UserError` if it does not start."""
        for attempt in range(1, _STARTS + 1):
            ports = free_ports(3)
            offset = self.log.stat().st_size if self.log.exists() else 0
            self._child = child.start("Pravega", self._command(ports), self.log, env=in_english(), cwd=self._folder)
            self.address = f"{LOOPBACK}:{ports[0]}"
            failure = self._wait()
            if not failure:
                return
            self.kill()
            output = tail(self.log, offset)
            if attempt == _STARTS or not any(text in output for text in _TAKEN):
                raise UserError(f"Pravega did not start ({failure}); the end of {self.log}:\n{output}")

    def kill(self) -> None:
        """SIGKILL, which ends all its streams. Returns when the process is gone."""
        if self._child is not None:
            self._child.kill_session()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL if that takes too long."""
        if self._child is not None:
            self._child.stop_gently(_STOP_LIMIT_S)

    def _command(self, ports: tuple[int, ...]) -> list[str]:
        controller, store, zookeeper = ports
        settings = {
            "controller.rpc.port": controller,
            "segmentStore.port": store,
            "zk.port": zookeeper,
            "controller.rest.enable": "false",
            "admin.gateway.enable": "false",
        }
        with disk_errors(self._folder):
            temporary = self._folder / "tmp"
            temporary.mkdir(parents=True, exist_ok=True)
            properties, logging = self._folder / "server.properties", self._folder / "logback.xml"
            properties.write_text("".join(f"singlenode.{name}={value}\n" for name, value in settings.items()), "utf-8")
            logging.write_text(_LOGGING, "utf-8")
        files = {
            "java.io.tmpdir": temporary,
            "logback.configurationFile": logging,
            "singlenode.configurationFile": properties,
        }
        named = [f"-D{name}={path}" for name, path in files.items()]
        class_path = os.pathsep.join(map(str, jars(BUNDLE)))
        return [str(self._java.executable), *_FLAGS, *named, "-cp", class_path, _MAIN]

    def _wait(self) -> str:
        """Waits until a stream and a transaction can be created. Returns the failure, or ''."""
        assert self._child is not None, "start() has just started it"
        controller = Controller(self.address)
        deadline = time.monotonic() + _START_LIMIT_S
        try:
            while True:
                try:
                    controller.make_stream(_PROBE, 1)
                    controller.abort(_PROBE, controller.begin(_PROBE, _PROBE_LEASE_MS).id)
                    return ""
                except ControllerError as error:
                    if not self._child.alive:
                        return "it ended while starting"
                    if time.monotonic() > deadline:
                        return f"not within {_START_LIMIT_S:g} s: {error}"
                time.sleep(_POLL_S)
        finally:
            controller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def start_pravega(folder: Path, java: Java | None = None) -> Iterator[PravegaServer]:
    """A server with its files in ``folder/pravega`` and its log in ``folder/logs``."""
    with PravegaServer(folder / "pravega", folder / "logs" / "pravega.log", java or find_java()) as server:
        server.start()
        yield server


def check_reachable(address: str) -> None:
    """Raises `MissingEnvironment` if no controller answers at the address."""
    controller = Controller(address)
    try:
        controller.segments(_PROBE)
    except ControllerError as error:
        raise MissingEnvironment(
            f"Pravega's controller at {address} cannot be used ({error}). Check that it runs and that this machine can "
            f"reach that host:port. Without {VARIABLE} the suite starts its own server"
        ) from error
    finally:
        controller.close()


SERVICES = (Service("pravega", VARIABLE, check_reachable, str, start_pravega, lambda server: str(server.address)),)
