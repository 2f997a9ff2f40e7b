"""The objects below a prefix of a bucket, in Amazon S3 or a store compatible with it.

Promise: see `oncebench.delivery.stores.interface`. A name is taken by a conditional put (`If-None-Match: *`), which the
store refuses with 412 if the name exists. A start checks that the store obeys it: some stores ignore the header.

A lost answer is the trap. The put may have happened, and the client's own second try then gets the 412 of its first
one. Therefore no 412 counts before the object was read: if its content is ours, this put has won. If the object is not
there, the same content is put again. An earlier try that arrives later writes nothing, or the same bytes.

What can go wrong: no answer within `LIMIT_S`. Then the put may still happen after this process has ended. The next
start finds the entry, or takes a newer generation, as after a kill.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from oncebench.delivery.errors import NoStore, RefusedStart, StoreRefuses
from oncebench.delivery.stores.refusals import NO_BUCKET, advice, short

_Result = TypeVar("_Result")
# A store that restarts or elects a leader answers within seconds. A batch waits meanwhile, and its transactions stay
# open: this is half of the default of their time-out.
LIMIT_S = 30.0
# Of one request. An entry has a few kilobytes.
REQUEST_S = 10.0
# The client's own tries of one request, before ours.
_CLIENT_TRIES = 1
# Between two of our tries.
_PAUSE_S = 0.2
# The address of a store that is not Amazon's, and the region. The first variable that is set counts; AWS_ENDPOINT is
# obstore's own name, and the others are those of Amazon's clients.
ENDPOINT = "AWS_ENDPOINT_URL"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", ENDPOINT, "AWS_ENDPOINT")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_NO_REGION = "us-east-1"  # obstore's default


@dataclass(frozen=True)
class ObjectStore:
    """The objects of a bucket below a prefix.

    Address and login are in the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, and those of `address`.

    Attributes:
        bucket: its name.
        prefix: what all names begin with, without a slash at either end.
    """

    bucket: str
    prefix: str

    answers_can_be_lost = True

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def for_spark(self) -> str:
        """The URI for Spark: Hadoop's file system for such stores is S3A."""
        return f"s3a://{self.bucket}/{self.prefix}"

    def prepare(self) -> None:
        probe = f".probe-{uuid.uuid4().hex}"
        first, second = (self.put_exclusively(probe, each) for each in (b"first", b"second"))
        self.delete(probe)
        if not first or second:
            raise RefusedStart(
                f"the object store of {self} ignores If-None-Match: a second put of one name replaced the first. Two "
                "drivers could then decide the same batch. Take a store with conditional puts, or a mounted folder."
            )

    def put_exclusively(self, name: str, content: bytes) -> bool:
        """See `Store.put_exclusively`.

        Raises:
            NoStore: no answer: the entry may exist or not.
            StoreRefuses: the login, the region or the bucket is wrong, or the store cannot do this.
        """
        return self._answered(lambda: self._tried(name, content), f"whether {name} was written is not known")

    def _tried(self, name: str, content: bytes) -> bool:
        errors = _errors()
        try:
            self._client.put(self._key(name), content, mode="create", use_multipart=False)
            return True
        except (errors.AlreadyExistsError, errors.PreconditionError):
            return self._is(name, content)  # perhaps by an earlier try, whose answer was lost

    def _is(self, name: str, content: bytes) -> bool:
        """Whether an object that a put has met has this content.

        Raises:
            _Again: it is gone: it was deleted meanwhile, or the store refused two puts at once (409).
        """
        try:
            return bytes(self._client.get(self._key(name)).bytes()) == content
        except FileNotFoundError as gone:
            raise _Again from gone

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """See `Store.put`; every put is durable. A put without an answer may replace a later one."""
        del durable
        self._answered(
            lambda: self._client.put(self._key(name), content, use_multipart=False), f"{name} is not written"
        )

    def read(self, name: str) -> bytes:
        return self._of_existing(name, lambda: bytes(self._client.get(self._key(name)).bytes()))

    def names(self, after: str = "") -> Sequence[str]:
        """See `Store.names`; sends one request per 1,000 objects below the prefix.

        The count includes the objects in folders below.
        """
        begin = f"{self.prefix}/"
        offset = f"{begin}{after}" if after else None

        def listed() -> list[str]:
            pages = self._client.list(self.prefix, offset=offset)
            found = [each["path"].removeprefix(begin) for page in pages for each in page]
            return [name for name in found if "/" not in name]

        return self._answered(listed, "its objects are not listed")

    def delete(self, name: str) -> None:
        try:
            self._answered(lambda: self._client.delete(self._key(name)), f"{name} is not deleted")
        except FileNotFoundError:
            return

    def written_at(self, name: str) -> float:
        found = self._of_existing(name, lambda: self._client.head(self._key(name)))
        return float(found["last_modified"].timestamp())

    def _of_existing(self, name: str, request: Callable[[], _Result]) -> _Result:
        try:
            return self._answered(request, f"{name} is not read")
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "no such object", f"{self}/{name}") from None

    def below(self, folder: str) -> ObjectStore:
        return ObjectStore(self.bucket, f"{self.prefix}/{folder}")

    def refused(self, setting: str) -> AbstractContextManager[None]:
        del setting
        return nullcontext()  # every error names the store already

    def _no_bucket(self) -> StoreRefuses:
        return StoreRefuses(
            f"{self}: the store has no bucket {self.bucket!r}. Make the bucket, or name another one; and check "
            f"{ENDPOINT}, then start again."
        )

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    @property
    def _client(self) -> Any:
        login = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
        return _client(self.bucket, login)

    def _answered(self, request: Callable[[], _Result], what: str) -> _Result:
        """Repeats a request until it is answered.

        Raises:
            NoStore, StoreRefuses: see `put_exclusively`.
            FileNotFoundError: there is no such object.
        """
        errors, end = _errors(), time.monotonic() + LIMIT_S
        while True:
            try:
                return request()
            except FileNotFoundError as missing:  # obstore's NotFoundError is one
                if NO_BUCKET in str(missing):
                    raise self._no_bucket() from missing
                raise
            except (errors.BaseError, _Again) as error:
                if NO_BUCKET in str(error):
                    raise self._no_bucket() from error
                if (helps := advice(str(error))) is not None:
                    raise StoreRefuses(
                        f"{self}: the store refuses a request ({short(error)}). {helps}, then start again."
                    ) from error
                if time.monotonic() > end:
                    raise NoStore(
                        f"{self}: the object store gave no answer for {LIMIT_S:.0f} s ({short(error)}), so {what}. "
                        "Check that it runs and AWS_ENDPOINT_URL, then start again."
                    ) from error
                time.sleep(_PAUSE_S)


class _Again(Exception):
    """The request must be repeated."""


def address() -> tuple[str, str]:
    """Returns the store's address and region from the environment; an empty address is Amazon's.

    All clients of a job must use both: each client looks at other variables itself.
    """
    endpoint, region = (next(filter(None, map(os.environ.get, names)), "") for names in (_ENDPOINTS, _REGIONS))
    return endpoint, region or _NO_REGION


@cache
def _client(bucket: str, _login: tuple[tuple[str, str], ...]) -> Any:
    """Returns the client of a bucket; another login gets a new client.

    The client reads the login from the environment.
    """
    from obstore.store import S3Store  # noqa: PLC0415  (an extra)

    endpoint, region = address()
    limit = timedelta(seconds=REQUEST_S)
    config: Any = {"region": region, **({"endpoint": endpoint} if endpoint else {})}
    return S3Store(
        bucket,
        config=config,
        client_options={"timeout": limit, "connect_timeout": limit, "allow_http": endpoint.startswith("http://")},
        retry_config={"max_retries": _CLIENT_TRIES, "retry_timeout": limit},
    )


def _errors() -> Any:
    from obstore import exceptions  # noqa: PLC0415  (an extra)

    return exceptions
