"""The default catalog: an SQLite file in the warehouse's folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import TableProperties
from sqlalchemy import URL

from oncebench.delivery.durable import is_uri, make_folder
from oncebench.delivery.errors import RefusedStart

# SQLite has one writer at a time; a commit's statement takes milliseconds, on a busy disk a second.
BUSY_S = 30
FILE = "catalog.sqlite"
# The name under which the catalog's rows are stored: other programs open the file with the same name.
CATALOG_NAME = "default"
_NEWEST = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


@dataclass(frozen=True)
class LocalPlace:
    """Names a table of the default catalog. See `Place`.

    Attributes:
        warehouse: the folder of the catalog's file and of the tables.
        table: `namespace.table`.
    """

    warehouse: Path
    table: str

    @staticmethod
    def of(text: str) -> LocalPlace:
        """Returns the place of a text: the warehouse's path with the table's name.

        Raises:
            RefusedStart: the path is a URI, ends with no table, or names the catalog's file as its warehouse.
        """
        path = Path(text).absolute()
        if is_uri(text):
            raise RefusedStart(
                f"{without_login(text)} is not the URI of a catalog. Give a folder that every task can reach, and the "
                "table: /data/warehouse/NAMESPACE.TABLE. A REST catalog is named as https://HOST:PORT/PATH/NAMESPACE.TABLE."
            )
        if not is_table(path.name):
            raise RefusedStart(
                f"{text} does not end with a table and its namespace. Name the warehouse's folder and the table: "
                "/data/warehouse/NAMESPACE.TABLE."
            )
        if path.parent.name == FILE:  # "move that file away" would be bad advice
            raise RefusedStart(
                f"{path.parent} is the name of a catalog's file. Give the warehouse's folder, {path.parent.parent}."
            )
        return LocalPlace(path.parent, path.name)

    @property
    def file(self) -> Path:
        """The catalog's file."""
        return self.warehouse / FILE

    @property
    def remedy(self) -> str:
        return (
            "Restore the catalog's file and the table's newest metadata, or take a new checkpoint, sink_id and output."
        )

    def there(self) -> bool:
        return self.file.exists()

    def prepare(self) -> None:
        make_folder(self.warehouse)

    def open(self) -> SqlCatalog:
        # SQLite decodes this name. SQLAlchemy 2.1 would decode a plain path too, and 2.0 would not.
        file = URL.create("sqlite", database=f"file:{quote(str(self.file))}")
        uri = file.update_query_dict({"timeout": str(BUSY_S), "uri": "true"}).render_as_string(hide_password=False)
        return SqlCatalog(CATALOG_NAME, uri=uri, warehouse=str(self.warehouse))

    @property
    def made_with(self) -> Mapping[str, str]:
        """Properties of a table that the sink makes, as in `Place`.

        Each commit writes a file with all snapshots. Without this property all these files stay.
        """
        return {TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true"}

    @property
    def poll_s(self) -> float:
        return 0.0

    def unchanged(self, seen: str) -> bool:
        """See `Place`: reads one row of the file."""
        if not self.there():
            return not seen
        namespace, _, name = self.table.rpartition(".")
        try:
            with closing(sqlite3.connect(f"{self.file.as_uri()}?mode=ro", uri=True)) as connection:
                found = connection.execute(_NEWEST, (CATALOG_NAME, namespace, name)).fetchone()
        except sqlite3.Error:  # locked, damaged, or another program is making the catalog; a load shows the reason
            return False
        return str(found[0] if found else "") == seen

    def __str__(self) -> str:
        return f"{self.table} in {self.warehouse}"


def is_table(name: str) -> bool:
    """Whether a name is `namespace.table`."""
    return "." in name and all(name.split("."))


def without_login(text: str) -> str:
    """Returns a URI for a message, without its login.

    Everything between its scheme and its last @ may be a login, and is left out.
    """
    scheme, colon, rest = text.partition(":")
    return f"{scheme}://{rest.rpartition('@')[2].lstrip('/')}" if colon and "@" in rest else text


def folder_of(location: str) -> Path | None:
    """Returns the folder of a table's location; None if it is not on a local disk."""
    scheme, colon, path = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    return Path("/" + path.lstrip("/")) if scheme == "file" else None
