"""Finds the cause of an error of a catalog, its file or a table's metadata.

Promise: a start converts each error of `CATALOG_ERRORS` (`start_without_loss`). While a job runs, an error of unknown
cause counts as transient.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import requests
from pydantic import ValidationError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from sqlalchemy.exc import SQLAlchemyError
from strictyaml import YAMLError

from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient
from oncebench.delivery.failures.sqlite import of_error as of_sqlite
from oncebench.delivery.failures.system import passes
from oncebench_iceberg.catalogs.login import NoToken
from oncebench_iceberg.catalogs.objects import of_file_error
from oncebench_iceberg.catalogs.place import Place

NO_TABLE = (NoSuchTableError, NoSuchNamespaceError)
# pyiceberg raises NotImplementedError for the answer 501, and for a request that the catalog's list of requests lacks.
CATALOG_ERRORS = (
    SQLAlchemyError, OSError, RESTError, *NO_TABLE, ValidationError, pa.ArrowException, NotImplementedError,
)  # fmt: skip

_AWAY = transient("the REST catalog did not answer", "Check that it runs and that its address is right")
_LOGIN = permanent(
    "the REST catalog does not accept the login",
    "Set PYICEBERG_CATALOG__DEFAULT__TOKEN or PYICEBERG_CATALOG__DEFAULT__CREDENTIAL in the job's environment, or "
    "correct the part auth of .pyiceberg.yaml",
)
_LOGIN_STATUS = (400, 401, 403)  # by OAuth2 (RFC 6749, 5.2); a server that is away or overloaded gives others
# Answers of a REST catalog.
ANSWERS: Mapping[type[BaseException], Cause] = {
    CommitStateUnknownException: transient("the REST catalog failed, and may have taken the commit"),
    ServiceUnavailableError: transient("the REST catalog is not ready"),
    TooManyRequestsError: transient("the REST catalog is overloaded"),
    ServerError: transient("the REST catalog failed", "Look at its log"),
    UnauthorizedError: _LOGIN,
    AuthorizationExpiredError: _LOGIN,
    OAuthError: _LOGIN,
    NoToken: transient(
        "no token for the REST catalog could be fetched", "Check the part auth of .pyiceberg.yaml and what it names"
    ),
    ForbiddenError: permanent(
        "the REST catalog forbids this to the job's user", "Give that user the right to read and change the table"
    ),
    NotImplementedError: permanent(
        "the REST catalog does not offer this request", "Use a catalog that lets its clients create and change tables"
    ),
    BadRequestError: permanent("the REST catalog does not understand the request", "Look at its log and its version"),
}


def first_line(error: BaseException) -> str:
    """Returns an error's first line; SQLAlchemy and pydantic add statements, links and values."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def cause_of(error: BaseException) -> Cause:
    """Returns the cause of an error, as far as it is known.

    The error is one of a disk, an object store, the catalog's file, or a REST catalog.
    """
    if isinstance(error, requests.RequestException):  # an OSError without errno
        # pyiceberg converts the catalog's own answers, so this error comes from the login server.
        return _LOGIN if error.response is not None and error.response.status_code in _LOGIN_STATUS else _AWAY
    if isinstance(error, OSError):
        return of_file_error(error)
    original = getattr(error, "orig", None)
    if isinstance(original, sqlite3.Error):
        return of_sqlite(original)
    return ANSWERS.get(type(error), UNKNOWN)


def described(error: BaseException, place: Place, advice: str) -> str:
    """Returns an error of the catalog or of a table's metadata with its reason and what to do."""
    cause = cause_of(error)
    reason = "" if cause is UNKNOWN else f" ({cause.reason})"
    remedy = f"{cause.remedy}, then start again." if cause.remedy else advice
    return f"the Iceberg table {place} cannot be used: {first_line(error)}{reason}. {remedy}"


def may_pass(error: BaseException) -> bool:
    """Whether a later call may pass, though nothing is mended."""
    cause = cause_of(error)
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, requests.RequestException):
        return passes(error)
    return not cause.permanent and cause is not UNKNOWN


@contextmanager
def start_without_loss(place: Place) -> Iterator[None]:
    """Converts errors of the catalog or of a table's metadata, before a row is read.

    Raises:
        DeliveryFailed: the file is locked, the disk is full or a REST catalog is away; a later start may pass.
        RefusedStart: any other error.
    """
    try:
        yield
    except CATALOG_ERRORS as error:
        kind = DeliveryFailed if may_pass(error) else RefusedStart
        raise kind(f"No row was read or written: {described(error, place, place.remedy)}") from error
    except (ValueError, ImportError, YAMLError) as error:  # of table properties, and of pyiceberg's configuration
        raise RefusedStart(
            f"No row was read or written: pyiceberg cannot use the Iceberg table {place}: {first_line(error)}. Correct "
            "that table property or setting, then start again."
        ) from error
