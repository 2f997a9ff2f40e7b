"""A Kafka broker of our own (4.3.1, KRaft), on loopback: alone, or one of a `cluster`.

Promise: when `start_kafka` returns, the broker serves. When its context ends, it is gone. `kill()` is a real SIGKILL,
and `restart()` brings it back on the same ports with the same data. It listens on 127.0.0.1 only.

Failure modes: a requested port is taken (`UserError`), or the broker does not start (`UserError` with the end of its
log). A start after a kill takes about 3 s longer than a start after a stop (see `settings`).
"""

import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from oncebench.disk_errors import disk_errors
from oncebench.downloads.java import Java, find_java
from oncebench.errors import UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.processes import child
from oncebench.processes.child import Child
from oncebench.processes.language import in_english
from oncebench.processes.ports import LOOPBACK, free_ports
from oncebench.processes.temporary import emptied, jvm_option
from oncebench.servers.kafka.class_archive import StartFiles, make_data_folder, start_files
from oncebench.servers.kafka.process import PortTakenError, command, is_serving, wait_until_serving
from oncebench.servers.kafka.settings import CLIENTS, CONTROLLER, BrokerSettings
from oncebench.servers.kafka.topics import Kafka

_ANSWER_TIMEOUT_S = 30.0  # the broker already serves, and only a starved machine needs more than some ms
_STOP_TIMEOUT_S = 30.0  # it first writes its logs and checkpoints to disk
STARTS = 3  # another process may take a free port before the broker does
_HEAP_MB = 1024  # Kafka's default, and plenty for a few million events
_JVM = (
    "-Xms128m",
    "-XX:+ExitOnOutOfMemoryError",  # a broker that is out of memory would look like a slow broker
    # Only the first compiler: 3 million records in transactions took a third less CPU time than with both compilers (10
    # to 12 s against 16 to 18 s). The broker was not slower.
    "-XX:TieredStopAtLevel=1",
)


class KafkaBroker(Kafka):
    """A broker that the suite started. `ports`: the port of each listener (``PLAINTEXT``, ...).

    Args:
        cluster_id: the cluster that a broker without data joins; None: a new cluster.
        log: the file name of its log below ``work_dir/logs``.
    """

    def __init__(
        self,
        work_dir: Path,
        settings: BrokerSettings,
        java: Java,
        files: StartFiles,
        heap_mb: int,
        cluster_id: str | None = None,
        log: str = "kafka.log",
    ) -> None:
        super().__init__(KafkaAccess(f"{LOOPBACK}:{settings.ports[CLIENTS]}"))
        self.ports = dict(settings.ports)
        self.log = work_dir / "logs" / log
        self.data = settings.data
        folder = settings.data.parent
        properties = folder / "server.properties"
        self._temporary = work_dir / "tmp" / self.log.stem  # outside the data's disk, which a fault may fill
        flags = (*files.flags, f"-Xmx{heap_mb}m", *_JVM, jvm_option(self._temporary))
        with disk_errors(work_dir):
            self.cluster_id = make_data_folder(settings.data, files, settings.node, cluster_id)
            properties.write_text(settings.properties(), "ascii")
            if settings.hosts:
                hosts = folder / "hosts"
                hosts.write_text(settings.hosts, "utf-8")
                flags = (*flags, f"-Djdk.net.hosts.file={hosts}")  # the JVM then asks no other resolver
            self._command = command(java, folder, flags, "kafka.Kafka", properties)
        self._child: Child | None = None
        self._log_offset = 0  # where the log of the newest start begins
        self._has_served = False  # since the newest start

    @property
    def pid(self) -> int:
        """Pid of the running broker. Raises `UserError` if it does not run."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        child = self._child  # read once: another thread may end it meanwhile
        return child is not None and child.alive

    def start(self) -> None:
        """Starts it and returns when it serves. If it does not start: kills it, raises `UserError`."""
        self.begin_start()
        self.wait_until_serving()

    def begin_start(self) -> None:
        """Starts its process, if none runs, and returns at once. `wait_until_serving` must follow."""
        if self.alive:
            return
        if self._child is not None:
            self._child.kill_session()  # it died by itself, and must be reaped before the next start
        self._has_served = False
        self._log_offset = self.log.stat().st_size if self.log.exists() else 0
        emptied(self._temporary)
        self._child = child.start("the Kafka broker", self._command, self.log, env=in_english())

    @property
    def serves(self) -> bool:
        """Whether a started broker serves. Raises `UserError` with the end of its log if it ended."""
        assert self._child is not None, "begin_start() comes first"
        return is_serving(self._child, self._log_offset)

    def wait_until_serving(self) -> None:
        """Returns when a started broker serves. If it does not: kills it, raises `UserError`."""
        assert self._child is not None, "begin_start() comes first"
        if self._has_served:
            return
        try:
            wait_until_serving(self._child, self._log_offset)
            found = self.admin().list_topics(timeout=_ANSWER_TIMEOUT_S).cluster_id
            if found != self.cluster_id:
                raise UserError(
                    f"another Kafka (cluster {found}) answers at {self.bootstrap_servers}: is the port taken?"
                )
        except KafkaException as error:
            self._child.kill_session()
            raise UserError(
                f"the Kafka broker started but does not answer ({error.args[0].str()}); see {self.log}"
            ) from error
        except BaseException:
            self._child.kill_session()
            raise
        self._has_served = True

    def kill(self) -> None:
        """SIGKILL: it flushes nothing and closes no connection. Returns when it is gone."""
        self._running().kill_session()

    def stop(self) -> None:
        """Shuts it down cleanly (SIGTERM), and kills it after 30 s. Does nothing if it does not run."""
        if self._child is not None:
            self._child.stop_gently(_STOP_TIMEOUT_S)

    def begin_stop(self) -> None:
        """Begins a clean shutdown (SIGTERM) and returns at once.

        The shutdown has ended when the broker is no longer `alive`.
        """
        self._running().send(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as in a long garbage collection."""
        self._running().freeze_whole()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._running().thaw()

    def restart(self) -> None:
        """Restarts it, or starts it, on the same ports and data. Returns when it serves."""
        self.stop()
        self.start()

    def _running(self) -> Child:
        return child.running(self._child, f"the Kafka broker at {self.bootstrap_servers}", self.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.kill_session()


def start_kafka(
    work_dir: Path,
    java: Java | None = None,
    *,
    extra_listeners: Mapping[str, int] | None = None,
    settings: Mapping[str, str] | None = None,
) -> KafkaBroker:
    """Starts a broker with data in ``work_dir/kafka``, log in ``work_dir/logs/kafka.log``.

    It continues with data that exist. Raises `UserError` and `MissingEnvironment`.

    Args:
        extra_listeners: for each additional listener (name in capitals) the loopback port that it advertises, for
            example the port of a proxy. The broker's `ports` have the ports where it really listens.
        settings: additional lines of server.properties, for example
            ``transaction.abort.timed.out.transaction.cleanup.interval.ms``.
    """
    java = java or find_java()
    files = start_files(java)
    data = work_dir / "kafka" / "data"
    names = [CLIENTS, CONTROLLER, *(extra_listeners or {})]
    for attempt in range(1, STARTS + 1):
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        described = BrokerSettings(data, ports, extra_listeners or {}, settings or {})
        broker = KafkaBroker(work_dir, described, java, files, _HEAP_MB)
        try:
            broker.start()
            break
        except PortTakenError:
            if attempt == STARTS:
                raise
    return broker
