"""Helpers of the tests: a REST catalog, a store, and clients of both.

The catalog's warehouse is in a real S3-compatible server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from oncebench_iceberg import server
from oncebench_iceberg.catalogs import rest
from oncebench_iceberg.rest_server.warehouse import VARIABLE
from oncebench_iceberg.server import RestCatalogServer, start_rest_catalog

from tests.s3_server import BUCKET, LOGIN, S3Server, s3_server

START_LIMIT_S = 900.0  # Amazon's client is a jar of 686 MB, and a busy machine reads it for minutes
SECRET = LOGIN["AWS_SECRET_ACCESS_KEY"]


def access(endpoint: str, secret: str = SECRET) -> dict[str, str]:
    """Returns pyiceberg's settings of the store, as a user sets them in the environment."""
    settings = {
        "ENDPOINT": endpoint,
        "ACCESS_KEY_ID": LOGIN["AWS_ACCESS_KEY_ID"],
        "SECRET_ACCESS_KEY": secret,
        "REGION": LOGIN["AWS_REGION"],
        "REQUEST_TIMEOUT": "30",  # Arrow's 3 s are short on a busy machine
    }
    return {f"PYICEBERG_CATALOG__DEFAULT__S3__{name}": value for name, value in settings.items()}


@dataclass
class Lake:
    """A catalog and a store, both running."""

    catalog: RestCatalogServer
    store: S3Server


@contextmanager
def lake(folder: Path) -> Iterator[Lake]:
    """Starts both. The catalog reaches the store without a proxy."""
    with s3_server(folder / "objects") as store, pytest.MonkeyPatch.context() as patch:
        for name, value in {**access(store.endpoint), VARIABLE: f"s3://{BUCKET}/warehouse"}.items():
            patch.setenv(name, value)
        patch.setattr(server, "_START_LIMIT_S", START_LIMIT_S)
        patch.setattr(rest, "READ_S", START_LIMIT_S)  # the catalog's first request loads that client
        with start_rest_catalog(folder) as catalog:
            yield Lake(catalog, store)
