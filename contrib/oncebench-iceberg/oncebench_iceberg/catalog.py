"""Opens the default catalog: an SQLite file in the warehouse's folder.

Promise: `find` and `load` change nothing, and make no catalog. `make` makes what is missing.

What can go wrong: the file or a table's metadata cannot be read (`CATALOG_ERRORS`; `start_without_loss` converts them).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from oncebench.delivery.durable import is_uri, make_folder
from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.delivery.failures.cause import UNKNOWN, Cause
from oncebench.delivery.failures.sqlite import of_error as of_sqlite
from oncebench.delivery.failures.system import of_errno, passes

# SQLite has one writer at a time; a commit's statement takes milliseconds, on a busy disk a second.
BUSY_S = 30
FILE = "catalog.sqlite"
# The name under which the catalog's rows are stored: other programs open the file with the same name.
CATALOG_NAME = "default"
# What a catalog, its file, a table's metadata or the folder of a warehouse may raise.
CATALOG_ERRORS = (SQLAlchemyError, OSError, RESTError, NoSuchTableError, ValidationError, pa.ArrowException)
NO_TABLE = (NoSuchTableError, NoSuchNamespaceError)


@dataclass(frozen=True)
class Place:
    """Names a table of the default catalog.

    Attributes:
        warehouse: the folder of the catalog's file and of the tables.
        table: `namespace.table`.
    """

    warehouse: Path
    table: str

    @staticmethod
    def of(output: Mapping[str, Any]) -> Place:
        """Returns the place of a target: `output` is the warehouse's path with the table's name.

        Raises:
            RefusedStart: the path is a URI, or ends with no table.
        """
        text = str(output["output"])
        path = Path(text).absolute()
        if is_uri(text):
            raise RefusedStart(
                f"{text} is a URI, and this sink writes to a folder of a mounted file system only. Give the path of a "
                "folder that every task can reach, and the table: /data/warehouse/NAMESPACE.TABLE."
            )
        if "." not in path.name or not all(path.name.split(".")):
            raise RefusedStart(
                f"{text} does not end with a table and its namespace. Name the warehouse's folder and the table: "
                "/data/warehouse/NAMESPACE.TABLE."
            )
        return Place(path.parent, path.name)

    @property
    def file(self) -> Path:
        """The catalog's file."""
        return self.warehouse / FILE

    def __str__(self) -> str:
        return f"{self.table} in {self.warehouse}"


class Catalog:
    """The catalog of one place, opened when it is first needed.

    Args:
        place: the table.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._opened: SqlCatalog | None = None

    def find(self) -> Table | None:
        """Returns the table; None if there is none. Makes no file."""
        if not self.place.file.exists():
            return None
        try:
            return self._catalog().load_table(self.place.table)
        except NO_TABLE:
            return None

    def load(self) -> Table:
        """Returns the newest state of the table. Raises `NoSuchTableError` if it is gone."""
        found = self.find()
        if found is None:
            raise NoSuchTableError(f"there is no table {self.place}")
        return found

    def make(self, schema: Schema) -> Table:
        """Returns the table, and makes folder, catalog and table if they are missing."""
        make_folder(self.place.warehouse)
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self.place.table.rpartition(".")[0])
        return catalog.create_table_if_not_exists(self.place.table, schema)

    def close(self) -> None:
        """Closes the connections to the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _catalog(self) -> SqlCatalog:
        if self._opened is None:
            uri = f"sqlite:///{self.place.file}?timeout={BUSY_S}"
            self._opened = SqlCatalog(CATALOG_NAME, uri=uri, warehouse=str(self.place.warehouse))
        return self._opened


def first_line(error: BaseException) -> str:
    """Returns an error's first line; SQLAlchemy and pydantic add statements, links and values."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def cause_of(error: BaseException) -> Cause:
    """Returns what is known about an error of the disk or of the catalog's file."""
    if isinstance(error, OSError):
        return of_errno(error.errno)
    original = getattr(error, "orig", None)
    return of_sqlite(original) if isinstance(original, sqlite3.Error) else UNKNOWN


def described(error: BaseException, place: Place, advice: str) -> str:
    """Returns an error of the catalog or of a table's metadata with its reason and what to do."""
    cause = cause_of(error)
    reason = "" if cause is UNKNOWN else f" ({cause.reason})"
    remedy = f"{cause.remedy}, then start again." if cause.remedy else advice
    return f"the Iceberg table {place} cannot be used: {first_line(error)}{reason}. {remedy}"


def _may_pass(error: BaseException) -> bool:
    cause = cause_of(error)
    return passes(error) if isinstance(error, OSError) else not cause.permanent and cause is not UNKNOWN


@contextmanager
def start_without_loss(place: Place) -> Iterator[None]:
    """Converts errors of the catalog or of a table's metadata, before a row is read.

    Raises:
        DeliveryFailed: the file is locked or the disk is full, for example; a later start may pass.
        RefusedStart: any other error.
    """
    try:
        yield
    except CATALOG_ERRORS as error:
        kind = DeliveryFailed if _may_pass(error) else RefusedStart
        advice = (
            "Restore the catalog's file and the table's newest metadata, or take a new checkpoint, sink_id and output."
        )
        raise kind(f"No row was read or written: {described(error, place, advice)}") from error
