"""Which store a checkpoint is in: by the form of its address."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from oncebench.delivery.durable import is_uri
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores.interface import Store
from oncebench.delivery.stores.objects import ObjectStore
from oncebench.delivery.stores.posix import PosixStore

# The place of a checkpoint or a journal: a folder, or a prefix in an object store.
Place = Path | ObjectStore
# Both are Hadoop's and users' names for one address.
OBJECTS = ("s3://", "s3a://")


def store_of(place: Place) -> Store:
    """Returns the store of a place."""
    return PosixStore(place) if isinstance(place, Path) else place


def place_at(address: str | Path, setting: str = "checkpoint") -> Place:
    """Returns the place of an address: a path, or `s3://bucket/prefix`.

    Args:
        address: of a folder or a prefix.
        setting: what names it.

    Raises:
        RefusedStart: an address of another kind, or the client of the object store is not installed.
    """
    text = str(address)
    scheme = next((each for each in OBJECTS if text.startswith(each)), None)
    if scheme is not None:
        return _objects(text, scheme, setting)
    if is_uri(text) or is_uri(str(Path(text))):  # Spark gets the second form
        raise RefusedStart(
            f"{setting} is {text!r}, a URI that is not supported. Give the path of a folder in a mounted file system "
            "with hard links and fsync, for example /data/checkpoint, or s3://bucket/folder. HDFS and other object "
            "stores are not supported."
        )
    return Path(address)


def _objects(text: str, scheme: str, setting: str) -> ObjectStore:
    bucket, _, prefix = text.removeprefix(scheme).partition("/")
    prefix = prefix.strip("/")
    if {"@", ":"} & set(bucket):  # the address is not repeated: it may hold a secret
        raise RefusedStart(
            f"{setting} has a login or a port where the name of the bucket must be. Put the login into "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the address of the store into AWS_ENDPOINT_URL. Then "
            "give s3://bucket/folder."
        )
    if not bucket or not all(prefix.split("/")) or {".", ".."} & set(prefix.split("/")):
        raise RefusedStart(
            f"{setting} is {text!r}, and must name a bucket and a folder in it, for example s3://bucket/orders. Each "
            "job needs a folder of its own."
        )
    if find_spec("obstore") is None:
        raise RefusedStart(
            f"{setting} is {text!r}, and the client of object stores is not installed. Install it: "
            "pip install '.[s3]' in your clone of oncebench"
        )
    return ObjectStore(bucket, prefix)
