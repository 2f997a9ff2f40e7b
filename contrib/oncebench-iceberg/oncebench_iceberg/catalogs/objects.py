"""Finds the cause of an error of an object store.

Arrow's client raises `OSError` without an errno. The text has the name of the error (`S3ErrorToString` in Arrow's
`s3_internal.h`):

    When reading information for key 'a' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation: ...

Promise: an error whose name is not listed here has an unknown cause, unless its HTTP status is 5xx. pyiceberg converts
some errors, for example a missing file to `FileNotFoundError`. Those have an errno.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient
from oncebench.delivery.failures.system import of_errno

_AWAY = transient("the object store did not answer", "Check that it runs and that its address is right")
_BUSY = transient("the object store is overloaded")
_FAILED = transient("the object store failed", "Look at its log")
_LOGIN = permanent(
    "the object store does not accept the keys, or they have no right to this",
    "Set PYICEBERG_CATALOG__DEFAULT__S3__ACCESS_KEY_ID and __S3__SECRET_ACCESS_KEY in the job's environment, or look "
    "at the keys that the REST catalog hands out",
)
_EXPIRED = transient("the keys have expired", "The REST catalog hands out new keys; renew keys that you have set")
_ANSWERS: Mapping[str, Cause] = {
    "NETWORK_CONNECTION": _AWAY,
    "REQUEST_TIMEOUT": _AWAY,
    "SLOW_DOWN": _BUSY,
    "THROTTLING": _BUSY,
    "SERVICE_UNAVAILABLE": _BUSY,
    "INTERNAL_FAILURE": _FAILED,
    "ACCESS_DENIED": _LOGIN,
    "INVALID_ACCESS_KEY_ID": _LOGIN,
    "INVALID_CLIENT_TOKEN_ID": _LOGIN,
    "SIGNATURE_DOES_NOT_MATCH": _LOGIN,
    "EXPIRED_TOKEN": _EXPIRED,
    "NO_SUCH_BUCKET": permanent("the object store has no such bucket", "Make the bucket, or correct its name"),
    # The answer to the end of an upload was lost, and some stores refuse to end it twice.
    "NO_SUCH_UPLOAD": transient("the object store has ended this upload already, or does not know it"),
}
_NAMED = re.compile(r"AWS Error ([A-Z_]+)(?: \(HTTP status (\d{3})\))? during")


def cause_in(error: OSError) -> Cause:
    """Returns what is known about an error without an errno, by its text."""
    found = _NAMED.search(str(error))
    if found is None:
        return UNKNOWN
    name, status = found.groups()
    if "ExpiredToken" in str(error):  # Amazon's name for it, which this client does not know
        return _EXPIRED
    return _ANSWERS.get(name) or (_FAILED if (status or "").startswith("5") else UNKNOWN)


def of_file_error(error: OSError) -> Cause:
    """Returns what is known about an error of a disk or of an object store."""
    return cause_in(error) if error.errno is None else of_errno(error.errno)
