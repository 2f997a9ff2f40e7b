"""A server that a sink needs: the user's own, which a variable names, or one of ours.

Promise: while the server is open, the variable has its address for this process and its children. At the end the
variable gets its old value, and a server that was started here is gone.

Failure modes: the user's server cannot be used (`MissingEnvironment`), or ours does not start (`UserError`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Opened:
    """An open server.

    Attributes:
        theirs: the address of the user's own server, without secrets.
        ours: the server that the suite started.
    """

    theirs: str | None = None
    ours: Any = None


@dataclass(frozen=True)
class Service:
    """The steps that open a server.

    Attributes:
        name: by which a sink names it in its traits; also of the folder with the server's files.
        variable: the environment variable with the address of the server.
        check: raises `MissingEnvironment` if the user's server at this address cannot be used.
        without_secrets: removes secrets from the address of the user's server.
        start: starts our server with its files below a folder, and ends it.
        address: the value of the variable for our server.
        durability: reads the settings of the open server that decide when a commit is durable.
        option: the option of our commands that names the user's server; empty: only the variable names it.
    """

    name: str
    variable: str
    check: Callable[[str], None]
    without_secrets: Callable[[str], str]
    start: Callable[[Path], AbstractContextManager[Any]]
    address: Callable[[Any], str]
    durability: Callable[[], Mapping[str, str]] = dict
    option: str = ""

    @property
    def named_by(self) -> str:
        """How the user names a server of their own, for messages."""
        return self.option or f"the variable {self.variable}"

    @contextmanager
    def open(self, folder: Path) -> Iterator[Opened]:
        """Opens the user's server if there is one, else ours with its files below `folder`."""
        named = os.environ.get(self.variable)
        if named:
            self.check(named)
            yield Opened(theirs=self.without_secrets(named))
            return
        with self.start(folder) as server:
            os.environ[self.variable] = self.address(server)
            try:
                yield Opened(ours=server)
            finally:
                del os.environ[self.variable]
