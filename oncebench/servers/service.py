"""A server that a sink needs: the user's own, which an environment variable names, or one of ours.

Promise: while it is open the variable names it to this process and its children; afterwards the variable is as it was,
and a server that was started here is gone. What can go wrong: the user's own can't be used (`MissingEnvironment`), or
ours does not come up (`UserError`).
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
    """A server that is there: `theirs`, where the user's own is, as far as that may be seen, or `ours`, the server."""

    theirs: str | None = None
    ours: Any = None


@dataclass(frozen=True)
class Service:
    """How to come by one.

    Attributes:
        variable: names the server to whoever uses it.
        check: raises `MissingEnvironment` if the user's own can't be used.
        shown: of what the variable of the user's own says, what anybody may see.
        start: starts one of ours with its files below a folder, and ends it.
        where: what the variable is to say of one of ours.
        durability: asked of the one that is open: its settings that say when a commit is safe, by name.
    """

    variable: str
    check: Callable[[str], None]
    shown: Callable[[str], str]
    start: Callable[[Path], AbstractContextManager[Any]]
    where: Callable[[Any], str]
    durability: Callable[[], Mapping[str, str]] = dict

    @contextmanager
    def open(self, folder: Path) -> Iterator[Opened]:
        """The user's own if there is one, else one of ours with its files below `folder`."""
        named = os.environ.get(self.variable)
        if named:
            self.check(named)
            yield Opened(theirs=self.shown(named))
            return
        with self.start(folder) as server:
            os.environ[self.variable] = self.where(server)
            try:
                yield Opened(ours=server)
            finally:
                del os.environ[self.variable]
