"""Downloads that are kept only if they have the pinned SHA-256.

Promise: `fetch` leaves the whole, verified file at its target, or nothing. It writes to a temporary name in the same
folder, hashes while it writes, and renames at the end. It gives up a silent server after a minute.
"""

import hashlib
import tempfile
from pathlib import Path

import requests

from oncebench.downloads.cache import CACHE_VARIABLE
from oncebench.errors import MissingEnvironment, UserError

_TIMEOUT_S = (10, 60)  # to connect, and between two chunks
_ATTEMPTS = 3  # a short failure of a mirror should not end a run
_CHUNK_BYTES = 1 << 18
UNFINISHED = ".fetch-"  # the beginning of a file name while the download runs
_SERVER_ERROR = 500  # HTTP codes from here on may be temporary; smaller codes are permanent


def fetch(url: str, target: Path, sha256: str, mirror_variable: str) -> None:
    """Downloads `url` to `target`.

    Args:
        mirror_variable: the environment variable with which a user selects another server, for the error messages.

    Raises:
        MissingEnvironment: the file cannot be downloaded or written.
        UserError: the server sent other bytes than the pinned ones.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch_once(url, target, sha256, mirror_variable)
        except requests.RequestException as error:
            if attempt < _ATTEMPTS and _may_be_temporary(error):
                continue
            raise MissingEnvironment(
                f"{url} could not be fetched ({_reason(error)}). Check the network and the proxy settings, "
                f"or set {mirror_variable} to a mirror that this machine can reach"
            ) from error
        except OSError as error:
            raise MissingEnvironment(
                f"{target} could not be written ({error.strerror}). "
                f"Make room, or set {CACHE_VARIABLE} to another folder"
            ) from error
        return


def _may_be_temporary(error: requests.RequestException) -> bool:
    return error.response is None or error.response.status_code >= _SERVER_ERROR


def _reason(error: requests.RequestException) -> str:
    return f"{type(error).__name__}: {error}" if error.response is None else f"HTTP {error.response.status_code}"


def _ask(url: str) -> requests.Response:
    """Sends the request.

    Raises `MissingEnvironment` if this machine is not set up for it.
    """
    try:
        # identity: a server that compresses a .tar.gz again in transit would change the hashed bytes
        return requests.get(url, stream=True, timeout=_TIMEOUT_S, headers={"Accept-Encoding": "identity"})
    except requests.RequestException:
        raise
    except OSError as error:  # requests reads the file of REQUESTS_CA_BUNDLE before it connects
        raise MissingEnvironment(
            f"{url} could not be fetched ({error}). Correct or unset REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE"
        ) from error


def _fetch_once(url: str, target: Path, sha256: str, mirror_variable: str) -> None:
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=UNFINISHED, delete=False) as file:
        temporary = Path(file.name)
        try:
            with _ask(url) as answer:
                answer.raise_for_status()
                for chunk in answer.iter_content(_CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
            file.flush()
            if digest.hexdigest() != sha256:
                raise UserError(
                    f"{url} has SHA-256 {digest.hexdigest()}, but {sha256} is pinned. This is not the file that was "
                    "tested, so it was not kept. Check the proxy between this machine and the server, or the mirror in "
                    f"{mirror_variable}"
                )
            temporary.chmod(0o644)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
