"""One Kafka broker of our own (4.3.1, KRaft, one node), on loopback, always reaped; or somebody else's, only used.

Promise: when `start_kafka` returns, the broker serves; when its context ends, it is gone. `kill()` is a real SIGKILL,
and `restart()` brings it back on the same ports with the same data. It listens on nothing but 127.0.0.1.

What can go wrong: a wished-for port is taken (`UserError`), or the broker doesn't come up (`UserError` with the last
lines of its log). After a kill it serves again about 3 s later than after a stop (see `broker_settings`).
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from oncebench.downloads.java import Java, find_java
from oncebench.errors import UserError
from oncebench.processes import child
from oncebench.processes.child import Child
from oncebench.processes.ports import LOOPBACK, free_ports, is_free
from oncebench.run.workdir import disk_errors
from oncebench.servers.kafka.class_archive import Prepared, make_data_folder, prepare
from oncebench.servers.kafka.external import external
from oncebench.servers.kafka.process import PortTakenError, command, wait_until_serving
from oncebench.servers.kafka.settings import CLIENTS, CONTROLLER, BrokerSettings
from oncebench.servers.kafka.topics import Kafka

__all__ = ["KafkaBroker", "external", "start_kafka"]

_ANSWER_TIMEOUT_S = 30.0  # it serves already: only a starved machine needs more than some ms
_STOP_TIMEOUT_S = 30.0  # it writes its logs and checkpoints to disk first
_STARTS = 3  # a free port can be taken by somebody else before the broker has it
_HEAP_MB = 1024  # Kafka's own default; a run of a few million events fits many times
_JVM = (
    "-Xms128m",
    "-XX:+ExitOnOutOfMemoryError",  # a broker half dead would look like a slow one
    # The first compiler only: measured over 3 million records written in transactions and read, the broker used a third
    # less processor time than with both (10-12 s against 16-18 s) and was no slower.
    "-XX:TieredStopAtLevel=1",
)


class KafkaBroker(Kafka):
    """A broker that the suite started. `ports` maps each listener (``PLAINTEXT``, ...) to the port where it listens."""

    def __init__(self, work_dir: Path, settings: BrokerSettings, java: Java, prepared: Prepared, heap_mb: int) -> None:
        super().__init__(f"{LOOPBACK}:{settings.ports[CLIENTS]}")
        self.ports = dict(settings.ports)
        self.log = work_dir / "logs" / "kafka.log"
        self.data = settings.data
        folder = settings.data.parent
        properties = folder / "server.properties"
        flags = (*prepared.flags, f"-Xmx{heap_mb}m", *_JVM)
        with disk_errors(work_dir):
            self.cluster_id = make_data_folder(settings.data, prepared)
            properties.write_text(settings.properties(), "utf-8")
            self._command = command(java, folder, flags, "kafka.Kafka", properties)
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Pid of the running broker; `UserError` if it doesn't run."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Start it and return when it serves. If it doesn't come up it is killed and `UserError` raised."""
        if self.alive:
            return
        if self._child is not None:
            self._child.kill_session()  # it died by itself: reap it before another takes its place
        offset = self.log.stat().st_size if self.log.exists() else 0
        self._child = child.start("the Kafka broker", self._command, self.log)
        try:
            wait_until_serving(self._child, offset)
            found = self.admin().list_topics(timeout=_ANSWER_TIMEOUT_S).cluster_id
            if found != self.cluster_id:
                raise UserError(
                    f"{self.bootstrap_servers} is answered by another Kafka (cluster {found}): is the port taken?"
                )
        except KafkaException as error:
            self._child.kill_session()
            raise UserError(
                f"the Kafka broker started but doesn't answer ({error.args[0].str()}); see {self.log}"
            ) from error
        except BaseException:
            self._child.kill_session()
            raise

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told. Returns when it is gone."""
        self._running().kill_session()

    def stop(self) -> None:
        """Shut it down in good order (SIGTERM; killed if that takes over 30 s). Nothing happens if it doesn't run."""
        if self._child is not None:
            self._child.stop_gently(_STOP_TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as in a long garbage collection or a cut network."""
        self._running().freeze()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._running().thaw()

    def restart(self) -> None:
        """Stop it if it runs, start it again on the same ports and data, and return when it serves."""
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
    port: int | None = None,
    extra_listeners: Mapping[str, int] | None = None,
    settings: Mapping[str, str] | None = None,
    heap_mb: int = _HEAP_MB,
) -> KafkaBroker:
    """Start a broker with its data in ``work_dir/kafka`` (used if it is there) and ``work_dir/logs/kafka.log``.

    `extra_listeners` maps the name of a listener (capitals) to the loopback port that it tells clients, a proxy's say;
    where it really listens is in the broker's `ports`. `settings` go into server.properties as they are, for example
    ``transaction.abort.timed.out.transaction.cleanup.interval.ms``. Raises `UserError` and `MissingEnvironment`.
    """
    if port is not None and not is_free(port):
        raise UserError(f"port {port} on {LOOPBACK} is taken: choose another, or none to have a free one chosen")
    java = java or find_java()
    prepared = prepare(java)
    data = work_dir / "kafka" / "data"
    names = [CLIENTS, CONTROLLER, *(extra_listeners or {})]
    for attempt in range(1, _STARTS + 1):
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        if port is not None:
            ports[CLIENTS] = port
        broker = KafkaBroker(
            work_dir, BrokerSettings(data, ports, extra_listeners or {}, settings or {}), java, prepared, heap_mb
        )
        try:
            broker.start()
            break
        except PortTakenError:
            if port is not None or attempt == _STARTS:
                raise
    return broker
