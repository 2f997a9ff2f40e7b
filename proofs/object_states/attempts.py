"""A pipeline whose checkpoint is in the model of an object store; its output is a folder.

Promise: journal, sink, protocol and batch are the real classes, as in `proofs.crash_states.attempts`. Spark's two logs
are in the same store. Spark refuses an entry that exists (`logs_replace`: it does not).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from obstore.exceptions import AlreadyExistsError

from oncebench.delivery.errors import QueryDied
from oncebench.delivery.stores import objects
from oncebench.delivery.stores.objects import ObjectStore
from proofs.crash_states.attempts import Pipeline, Workspace
from proofs.crash_states.spark import Logs, Put
from proofs.object_states.store import Client

CHECKPOINT = ObjectStore("bucket", "checkpoint")


@dataclass(frozen=True)
class LogsInStore(Logs):
    """Spark's offset log and commit log as objects."""

    client: Any = None
    replace: bool = False

    def make(self) -> None:
        """Nothing: a store has no folders."""

    def begin(self, available: int) -> tuple[int, int]:
        """See `Logs.begin`."""
        newest = max(self._numbers("offsets"), default=-1)
        if newest >= 0 and newest not in self._numbers("commits"):
            return newest, self.rows(newest)
        self._put(f"offsets/{newest + 1}", b"%d" % available)
        return newest + 1, available

    def end(self, batch: int) -> None:
        """See `Logs.end`."""
        if batch not in self._numbers("commits"):
            self._put(f"commits/{batch}", b"{}")

    def done(self) -> set[int]:
        return self._numbers("commits")

    def rows(self, batch: int) -> int:
        with self.client.spark() as client:
            return int(client.get(f"{CHECKPOINT.prefix}/offsets/{batch}").bytes())

    def _numbers(self, log: str) -> set[int]:
        with self.client.spark() as client:
            names = [each["path"] for page in client.list(f"{CHECKPOINT.prefix}/{log}") for each in page]
        return {int(name.rpartition("/")[2]) for name in names}

    def _put(self, entry: str, content: bytes) -> None:
        try:
            with self.client.spark() as client:
                client.put(f"{CHECKPOINT.prefix}/{entry}", content, mode="overwrite" if self.replace else "create")
        except AlreadyExistsError as exists:
            raise QueryDied(f"{entry} exists: Spark stops a query whose logs another one writes") from exists


class StoreWorkspace(Workspace):
    """A pipeline's output folder, and its checkpoint in the store.

    Args:
        pipeline: the pipeline.
        root: of the output.
        record: of its progress.
        logs_replace: whether Spark's logs replace an entry that exists.
    """

    def __init__(self, pipeline: Pipeline, root: Path, record: Path, logs_replace: bool = False) -> None:
        super().__init__(pipeline, root, record)
        self._target = replace(self._target, checkpoint=CHECKPOINT)
        self._logs_replace = logs_replace

    def logs(self, put: Put) -> Logs:
        """Spark's logs."""
        return LogsInStore(Path(), put, True, _of_this_thread.client, self._logs_replace)


_of_this_thread = threading.local()


@contextmanager
def using(client: Client) -> Iterator[None]:
    """Requests of this thread go through a client inside."""
    _of_this_thread.client = client
    try:
        yield
    finally:
        del _of_this_thread.client


@contextmanager
def modelled() -> Iterator[None]:
    """The store's client is the model of the thread, and nobody waits between two tries."""
    with (
        mock.patch.object(objects, "_client", lambda _bucket, _login: _of_this_thread.client),
        mock.patch.object(objects, "_PAUSE_S", 0.0),
    ):
        yield
