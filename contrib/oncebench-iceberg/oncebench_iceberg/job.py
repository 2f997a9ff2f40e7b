"""Describes an Iceberg table for `oncebench.jobs.deliver`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oncebench.delivery.durable import is_uri
from oncebench.delivery.errors import RefusedStart
from oncebench_iceberg.catalogs.configuration import import_pyiceberg


@dataclass(frozen=True)
class IcebergTable:
    """A table of the SQLite catalog in a warehouse; a start makes what is missing.

    Attributes:
        warehouse: the path of a folder that every task can reach, not a URI. The catalog is its file `catalog.sqlite`.
        table: `namespace.table`.
        sink_id: the permanent name of the job. It is part of the names of its table properties.
    """

    warehouse: str
    table: str
    _: KW_ONLY
    sink_id: str

    @property
    def kind(self) -> str:
        return "iceberg"

    @property
    def output(self) -> str:
        if is_uri(self.warehouse):  # it may have a login, and a path of Python would change it
            raise RefusedStart(
                f"the warehouse of the table {self.table} is a URI. Give the path of a folder that every task can "
                "reach, or take IcebergRestTable for a table of a REST catalog."
            )
        return str(Path(self.warehouse, self.table))

    @property
    def more(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True)
class IcebergRestTable:
    """A table of a REST catalog; a start makes the namespace and the table if they are missing.

    The token or login is in pyiceberg's configuration of the catalog `default`, as in the environment variable
    PYICEBERG_CATALOG__DEFAULT__TOKEN, so that no secret is in the code.

    Attributes:
        uri: of the catalog, as pyiceberg takes it: https://HOST:PORT/PATH, without `/v1`.
        table: `namespace.table`.
        warehouse: the catalog's name for a warehouse; empty: the catalog has one only.
        sink_id: the permanent name of the job. It is part of the names of its table properties.
    """

    uri: str
    table: str
    _: KW_ONLY
    warehouse: str = ""
    sink_id: str

    @property
    def kind(self) -> str:
        return "iceberg-rest"

    @property
    def output(self) -> str:
        import_pyiceberg()
        from oncebench_iceberg.catalogs.rest import SCHEMES, RestPlace  # noqa: PLC0415  pyiceberg imports slowly

        if urlsplit(self.uri).scheme not in SCHEMES:  # the text would name a local warehouse; it may have a login
            raise RefusedStart(
                f"the uri of the REST catalog for the table {self.table} does not begin with http:// or https://. "
                "Give the catalog's address, without /v1: https://HOST:PORT/PATH."
            )
        return RestPlace(self.uri, self.table, self.warehouse).text

    @property
    def more(self) -> Mapping[str, Any]:
        return {}
