"""Kafka's JVM: its command line, and the wait until the broker serves."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from oncebench.downloads.java import Java
from oncebench.downloads.maven import jars
from oncebench.errors import UserError
from oncebench.processes.child import Child, read_log, tail
from oncebench.servers.kafka.settings import LOG4J
from oncebench.servers.limits import SERVER_LIMIT_S

_POLL_S = 0.02
_SERVING = b"Kafka Server started"
_TAKEN = b"Address already in use"


class PortTakenError(UserError):
    """Another process listens on a port of the broker."""


def command(java: Java, folder: Path, flags: Sequence[str], main_class: str, *arguments: str | Path) -> list[str]:
    """The command line of a Kafka program that logs to standard output.

    Args:
        folder: gets the file with the logging settings.
    """
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J, "utf-8")
    class_path = os.pathsep.join(map(str, jars("kafka-broker")))
    settings = ["-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={log4j}"]
    return [str(java.executable), *flags, *settings, "-cp", class_path, main_class, *map(str, arguments)]


def is_serving(child: Child, log_offset: int) -> bool:
    """Whether the broker serves, which its log shows from byte `log_offset` on.

    Raises `PortTakenError`, or `UserError` with the end of the log, if the broker has ended.
    """
    alive = child.alive  # read before the log, so the log of a dead broker is complete
    output = read_log(child.log, log_offset)
    if alive:
        return _SERVING in output
    if _TAKEN in output:
        raise PortTakenError(f"a port of the Kafka broker was taken by another process meanwhile; see {child.log}")
    raise _not_started(child, log_offset, "ended while starting")


def wait_until_serving(child: Child, log_offset: int) -> None:
    """Waits until the broker serves.

    Raises as `is_serving`, and `UserError` if the broker takes too long.
    """
    deadline = time.monotonic() + SERVER_LIMIT_S
    while not is_serving(child, log_offset):
        if time.monotonic() > deadline:
            raise _not_started(child, log_offset, f"did not serve within {SERVER_LIMIT_S:g} s")
        time.sleep(_POLL_S)


def _not_started(child: Child, log_offset: int, how: str) -> UserError:
    return UserError(f"{child.name} {how}; the end of {child.log}:\n{tail(child.log, log_offset)}")
