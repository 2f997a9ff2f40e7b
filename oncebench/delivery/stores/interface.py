"""What the journal needs of the place that holds it: exclusive put, put, read, list, delete.

| | folder (`posix`) | object store (`objects`) |
|---|---|---|
| a finished put survives | kill -9, power cut: file and folder are fsynced | the store answers after it is safe |
| a reader sees | a whole entry or none: link(2), rename(2) | a whole object or none |
| an existing name | link(2) refuses it | the store refuses it: PUT with `If-None-Match: *` |
| a list | has each finished put | has each finished put (Amazon S3 since December 2020) |
| a lost answer | on NFS: the file's number of hard links shows the put | the put may have happened, or happen later |

There is no rename and no append. Nothing rests on the order of two puts whose answers have not come.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class Store(Protocol):
    """A folder, or the objects below a prefix. `str` gives the path or the URI, for messages.

    Errors of every method: `OSError` (a folder), or `NoStore` (an object store that does not answer or refuses).
    """

    @property
    def answers_can_be_lost(self) -> bool:
        """Whether a put may happen although its caller gets no answer, or a wrong one."""

    def prepare(self) -> None:
        """Makes the place ready to be written, and checks that it keeps its promises.

        Raises:
            RefusedStart: it does not.
        """

    def put_exclusively(self, name: str, content: bytes) -> bool:
        """Writes an entry durably, unless the name exists; returns whether this call has written it.

        Args:
            name: of the entry.
            content: if `answers_can_be_lost`, no other put may have the same content: it shows whose put won.
        """

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Writes an entry atomically, also over an older one of this name.

        Args:
            name: of the entry.
            content: of the entry.
            durable: whether it must survive a power cut; a folder needs two fsyncs for that.
        """

    def read(self, name: str) -> bytes:
        """Returns an entry.

        Raises:
            FileNotFoundError: there is none of this name.
        """

    def names(self, after: str = "") -> Sequence[str]:
        """Returns the names of the entries here, not of those in folders below, in no order.

        Args:
            after: only names that are greater than this one.
        """

    def delete(self, name: str) -> None:
        """Removes an entry; none of this name is no error."""

    def written_at(self, name: str) -> float:
        """Returns the Unix time in s at which an entry was written, by the store's clock.

        Raises:
            FileNotFoundError: there is none of this name.
        """

    def below(self, folder: str) -> Store:
        """Returns a folder in this one."""

    def refused(self, setting: str) -> AbstractContextManager[None]:
        """Converts errors inside to errors that name this place and the next step.

        Args:
            setting: what names this place.
        """
