"""Servers that a sink needs beside Kafka: started for a run and reaped after it, or the user's own.

Promise: while a service is open, the environment variable that it names tells this process and its children where it
is; secrets travel in no other way. What can go wrong: see each service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from oncebench.services.postgres import postgres

# Name of a service, as a sink's kind asks for it -> opens it with its files below a folder.
# It gives, of a server of the user's own, where that is: what `oncebench run --NAME` takes, without secrets.
SERVICES: Mapping[str, Callable[[Path], AbstractContextManager[str | None]]] = {"postgres": postgres}


@contextmanager
def open_services(names: set[str], folder: Path) -> Iterator[dict[str, str]]:
    """Opens the services that are named, in the order of their names; gives those that are the user's own."""
    with ExitStack() as stack:
        opened = {name: stack.enter_context(SERVICES[name](folder)) for name in sorted(names)}
        yield {name: where for name, where in opened.items() if where is not None}
