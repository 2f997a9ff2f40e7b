"""Downloads that are kept only if their SHA-256 is the pinned one.

Promise: `fetch` leaves either the whole, verified file at its place or nothing: bytes go to a temporary name beside it,
are hashed on the way and renamed at the end. A silent server is given up after a minute, never waited for for ever.
"""

import hashlib
import tempfile
from pathlib import Path

import requests

from oncebench.downloads.cache import CACHE_VARIABLE
from oncebench.errors import MissingEnvironment, UserError

_TIMEOUT_S = (10, 60)  # to connect, and between two chunks
_ATTEMPTS = 3  # a mirror's hiccup should not end a run
_CHUNK_BYTES = 1 << 18
_SERVER_ERROR = 500  # HTTP codes from here on may pass; those below will be the same next time


def fetch(url: str, place: Path, sha256: str, mirror_variable: str) -> None:
    """Download `url` to `place`; `mirror_variable` is the environment variable by which a user chooses another server.

    Raises `MissingEnvironment` if it can't be had or written, and `UserError` if other bytes come than those pinned.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _fetch_once(url, place, sha256, mirror_variable)
        except requests.RequestException as error:
            if attempt < _ATTEMPTS and _may_pass(error):
                continue
            raise MissingEnvironment(
                f"{url} could not be fetched ({_reason(error)}). Check the network and the proxy settings, "
                f"or set {mirror_variable} to a mirror that this machine can reach"
            ) from error
        except OSError as error:
            raise MissingEnvironment(
                f"{place} could not be written ({error.strerror}); make room, or set {CACHE_VARIABLE} to another folder"
            ) from error
        return


def _may_pass(error: requests.RequestException) -> bool:
    return error.response is None or error.response.status_code >= _SERVER_ERROR


def _reason(error: requests.RequestException) -> str:
    return type(error).__name__ if error.response is None else f"HTTP {error.response.status_code}"


def _fetch_once(url: str, place: Path, sha256: str, mirror_variable: str) -> None:
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".fetch-", delete=False) as file:
        temporary = Path(file.name)
        try:
            # identity: a server that packs a .tar.gz once more on the way would change what is hashed
            with requests.get(url, stream=True, timeout=_TIMEOUT_S, headers={"Accept-Encoding": "identity"}) as answer:
                answer.raise_for_status()
                for chunk in answer.iter_content(_CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
            file.flush()
            if digest.hexdigest() != sha256:
                raise UserError(
                    f"{url} has SHA-256 {digest.hexdigest()}, but {sha256} is pinned: what came is not the file that "
                    f"was tested, and it was not kept. Check the proxy in between, or the mirror in {mirror_variable}"
                )
            temporary.chmod(0o644)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
