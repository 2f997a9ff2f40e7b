"""Finds the cause of an answer of Pravega's controller.

Promise: a code that is in no table counts as transient.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent
from oncebench_pravega.controller import ControllerError

_LOGIN = permanent(
    "the controller requires a login, and this sink has none",
    "Use a controller without authentication, or one that lets everybody use the stream",
)
# gRPC's codes. The controller answers UNKNOWN, INTERNAL and others after failures that may pass, too.
CODES: Mapping[str, Cause] = {
    "UNAUTHENTICATED": _LOGIN,
    "PERMISSION_DENIED": _LOGIN,
    "UNIMPLEMENTED": permanent(
        "the server at this address does not offer this request", "Name the port of Pravega's controller for gRPC"
    ),
    "INVALID_ARGUMENT": permanent("the controller does not take the request", "Correct the name of the stream"),
}


def cause_of(error: BaseException) -> Cause:
    """Returns what is known about an error of Pravega."""
    return CODES.get(error.code, UNKNOWN) if isinstance(error, ControllerError) else UNKNOWN


def refuses_lease(error: ControllerError) -> bool:
    """Whether the controller refuses a transaction for the length of its lease."""
    if error.call != "createTransaction":
        return False
    return error.code == "INVALID_ARGUMENT" or (error.code == "UNKNOWN" and "lease" in str(error))
