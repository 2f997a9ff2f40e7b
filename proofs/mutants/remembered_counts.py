"""Remembers what the SQL auditor counted, while mutants of the other auditor are tried.

Most tests compare both auditors, and the SQL auditor takes most of their time. It is not mutated, so the same files
have the same counts in every mutant.

Promise: counts are remembered by the whole content of their files. If a mutant changes the files of a test, they are
counted anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any

import pyarrow as pa

from oncebench.audit.sql import count as sql
from oncebench.audit.sql.files import Files


def remember_counts() -> None:
    """Replaces the functions of the SQL auditor that tests call."""
    count, connection = sql.count, sql.connection
    known: dict[bytes, dict[str, int]] = {}

    @contextmanager
    def opened_later(rows: int = 0) -> Iterator[Any]:
        with ExitStack() as stack:
            yield _Later(lambda: stack.enter_context(connection(rows)))

    def remembered(con: Any, files: Files) -> dict[str, int]:
        content = digest(files)
        if content not in known:
            known[content] = count(con.opened() if isinstance(con, _Later) else con, files)
        return dict(known[content])

    sql.count, sql.connection = remembered, opened_later


class _Later:
    """A database that is opened when it is first used."""

    def __init__(self, open_it: Any) -> None:
        self._open, self._database = open_it, None

    def opened(self) -> Any:
        """The database."""
        if self._database is None:
            self._database = self._open()
        return self._database

    def __getattr__(self, name: str) -> Any:
        return getattr(self.opened(), name)


def digest(files: Files) -> bytes:
    """A digest of all that the SQL auditor reads."""
    whole = hashlib.sha256()
    for field in fields(files):
        value = getattr(files, field.name)
        if field.name != "mappings":  # the memory of the tables
            whole.update(_bytes(value) if isinstance(value, pa.Table) else repr(value).encode())
    return whole.digest()


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
