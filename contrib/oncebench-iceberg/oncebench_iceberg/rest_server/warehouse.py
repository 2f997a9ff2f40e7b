"""Where our REST catalog keeps its tables.

The place is a local folder, or a folder of an object store with the API of S3.

`ONCEBENCH_ICEBERG_WAREHOUSE` names the folder in the store. The catalog uses pyiceberg's settings of the store, too
(`PYICEBERG_CATALOG__DEFAULT__S3__ENDPOINT`, and others).

Promise: keys are in the catalog's environment only, not in its files or its command.

What can go wrong: the text names no folder of an object store (`MissingEnvironment`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from oncebench.errors import MissingEnvironment

VARIABLE = "ONCEBENCH_ICEBERG_WAREHOUSE"
# Has Amazon's client; the suite has its jars for checkpoints in an object store.
_S3_BUNDLE = "spark-s3"
_S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
# How pyiceberg and Amazon's client for Java call the keys.
_KEYS = {
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
}
_REGION = "s3.region"
_ENDPOINT = "s3.endpoint"


@dataclass(frozen=True)
class Warehouse:
    """A warehouse of our REST catalog.

    Attributes:
        settings: of the catalog, without secrets.
        bundles: of jars that the catalog needs.
        environment: of the catalog, with secrets.
    """

    settings: Mapping[str, str]
    bundles: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def warehouse_of(environment: Mapping[str, str], folder: Path) -> Warehouse:
    """Returns the warehouse that a variable of the environment names.

    Without the variable, it is a local warehouse below `folder`.

    Raises:
        MissingEnvironment: the variable does not name a folder of an object store.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return Warehouse({"warehouse": str(folder / "warehouse")})
    parts = urlsplit(text)
    if parts.scheme != "s3" or not parts.hostname or "@" in parts.netloc or not parts.path.strip("/") or parts.query:
        raise MissingEnvironment(f"{VARIABLE} names no folder of an object store. Set it to s3://BUCKET/FOLDER")
    from oncebench_iceberg.catalogs.rest import settings  # noqa: PLC0415  pyiceberg takes a second to import

    return _in_s3(text, settings())


def _in_s3(text: str, access: Mapping[str, str]) -> Warehouse:
    # Names of tables repeat, so each catalog has a folder of its own.
    settings = {"warehouse": f"{text.rstrip('/')}/{uuid.uuid4().hex}", "io-impl": _S3_IO}
    if _ENDPOINT in access:
        settings |= {_ENDPOINT: access[_ENDPOINT], "s3.path-style-access": "true"}
    if _REGION in access:
        settings["client.region"] = access[_REGION]
    environment = {name: access[key] for key, name in _KEYS.items() if key in access}
    return Warehouse(settings, (_S3_BUNDLE,), environment)
