"""The digests of a run folder's files, which show whether a stored run was changed.

The last step of a run writes `digests.json`: the size and SHA-256 of every file that the audit reads. The loader
compares them, because a zeroed or cut part of a file can look like lost rows.

Promise: a file that was changed, cut or removed after the run is named, and the run is never judged kept or broken.
This includes `digests.json` itself: `facts.json` shows that the run wrote it.

What can go wrong: a folder of an earlier version has no digests, so nothing is compared. The file guards against
damage, and not against somebody who changes the digests too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import TypedDict  # pydantic takes that of `typing` only from Python 3.12

from oncebench.record.validation import SCHEMA_VERSION, RecordError, require

FILE = "digests.json"
# What `Record.load` reads, besides the folders of the ledgers.
_READ = ("*.arrow", "*.jsonl", "cell.json", "ends.json", "facts.json")


class Digest(TypedDict):
    """One file: its bytes, and their SHA-256 in hexadecimal."""

    bytes: int
    sha256: str


class _Digests(TypedDict):
    files: dict[str, Digest]


def write_digests(folder: Path) -> None:
    """Writes the digests of a run folder.

    This is the run's last step, since no file may change after it.
    """
    files = {str(path.relative_to(folder)): _digest(path) for path in _read_by_the_audit(folder)}
    (folder / FILE).write_text(json.dumps({"schema": SCHEMA_VERSION, "files": files}, indent=1))


def altered(folder: Path, written: bool = False) -> tuple[str, ...]:
    """Returns a sentence for each file that is not as the run wrote it.

    The result is empty for a run that wrote no digests.

    Args:
        written: whether `facts.json` shows that the run wrote them.

    Raises:
        RecordError: the digests themselves cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        return (_sentence(FILE, "it is missing"),) if written else ()
    try:
        stored = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read ({error}); take the folder from a sound copy") from error
    require(stored, _Digests, path)
    wrong = ((name, _difference(folder / name, digest)) for name, digest in sorted(stored["files"].items()))
    return tuple(_sentence(name, why) for name, why in wrong if why)


def _sentence(name: str, why: str) -> str:
    return f"{name} is not as the run wrote it: {why}. Take the folder from a sound copy, or run the cell again"


def _read_by_the_audit(folder: Path) -> Iterator[Path]:
    for pattern in _READ:
        yield from (path for path in folder.glob(pattern) if path.is_file())
    yield from (path for path in folder.glob("ledger*/*") if path.is_file())


def _difference(path: Path, wanted: Digest) -> str:
    if not path.is_file():
        return "it is missing"
    size = path.stat().st_size
    if size != wanted["bytes"]:
        return f"it has {size:,} bytes, and had {wanted['bytes']:,}"
    return "" if _digest(path) == wanted else "its SHA-256 differs"


def _digest(path: Path) -> Digest:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
