"""Entries of JSON in a store.

Where answers can be lost, an exclusive entry gets a random `put`, so that its writer can recognise it. Readers get the
entry without it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncebench.delivery.errors import NoStore, RefusedStart
from oncebench.delivery.stores.choose import Place, store_of
from oncebench.delivery.stores.interface import Store

# What reading an entry raises if the entry is not as it was written.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, IsADirectoryError)
# What a note that may be missing must survive: the delivery does not rest on it.
UNAVAILABLE = (OSError, NoStore)
_PUT = "put"


def put_exclusively(place: Place, name: str, entry: Mapping[str, Any]) -> bool:
    """Writes an entry durably, unless the name exists; returns whether it was written."""
    store = store_of(place)
    mark = {_PUT: uuid.uuid4().hex} if store.answers_can_be_lost else {}
    return store.put_exclusively(name, json.dumps({**entry, **mark}).encode())


def put_in_place_of(place: Place, name: str, entry: Mapping[str, Any], *, durable: bool = True) -> None:
    """Writes an entry atomically, also over an older one of this name; see `Store.put`."""
    store_of(place).put(name, json.dumps(entry).encode(), durable=durable)


def read_entry(place: Place | Store, name: str) -> dict[str, Any]:
    """Returns an entry.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no JSON object.
    """
    store = store_of(place) if isinstance(place, Path) else place
    found = json.loads(store.read(name))
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    found.pop(_PUT, None)
    return found


def exists(place: Place, name: str) -> bool:
    """Whether there is an entry of this name; in an object store a read is cheaper than a list."""
    try:
        store_of(place).read(name)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def refuse_damaged(
    entry: Path | str,
    advice: str = "Restore the checkpoint with its journal, as they were just before the damage; without such a copy, "
    "take a new checkpoint, sink_id and output. Do not remove the entry: nothing else may show which rows were "
    "written.",
) -> Iterator[None]:
    """Converts errors of a damaged JSON file to RefusedStart; its message ends with the advice.

    Raises:
        RefusedStart: the file is damaged, or another user has written it and this one must not read it.
    """
    try:
        yield
    except PermissionError as error:
        raise RefusedStart(
            f"{entry} cannot be read ({error.strerror}): another user has written it. Give it to the user of this job "
            "with chown, then start again."
        ) from error
    except DAMAGE as error:
        raise RefusedStart(f"{entry} is damaged ({type(error).__name__}: {error}). {advice}") from error
