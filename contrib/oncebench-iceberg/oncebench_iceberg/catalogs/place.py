"""Names a table and its catalog.

The module describes what each kind of catalog can do, and finds the kind that a text names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyiceberg.catalog

from oncebench_iceberg.catalogs.local import LocalPlace
from oncebench_iceberg.catalogs.rest import SCHEMES, RestPlace


class Place(Protocol):
    """A table of a catalog. Its text is a readable name."""

    @property
    def table(self) -> str:
        """`namespace.table`."""

    @property
    def remedy(self) -> str:
        """What to do if the catalog or the table's metadata cannot be read, as a sentence."""

    def there(self) -> bool:
        """Whether the catalog is there. False: `prepare` makes it."""

    def prepare(self) -> None:
        """Makes what a catalog needs before it is opened."""

    def open(self) -> pyiceberg.catalog.Catalog:
        """Opens the catalog."""

    @property
    def made_with(self) -> Mapping[str, str]:
        """Properties of a table that the sink makes."""

    @property
    def poll_s(self) -> float:
        """How long a reader waits before it looks again."""

    def unchanged(self, seen: str) -> bool:
        """Returns whether the table certainly still has the metadata file `seen`. Cheap.

        If `seen` is empty, returns whether the table certainly has none.
        """


def place_of(output: Mapping[str, Any]) -> Place:
    """Returns the place of a target by its text `output`.

    `/data/warehouse/NAMESPACE.TABLE` names a warehouse with an SQLite catalog,
    `https://HOST:PORT/PATH/NAMESPACE.TABLE?warehouse=NAME` a REST catalog.

    Raises:
        RefusedStart: the text names neither.
    """
    text = str(output["output"])
    return RestPlace.of(text) if urlsplit(text).scheme in SCHEMES else LocalPlace.of(text)
