"""An object store that refuses a request is not taken for one that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from oncebench.delivery.errors import NoStore, StoreRefuses
from oncebench.delivery.stores import objects
from oncebench.delivery.stores.objects import ObjectStore
from oncebench.jobs.object_store import spark_settings

pytest.importorskip("obstore", reason="needs the extra s3")
STORE = ObjectStore("bucket", "orders")
SECRET = "FwoGZXIvYXdzEBYaDOLq"
LOGIN = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION")


@contextmanager
def answering(status: int, code: str, seen: list[str] | None = None) -> Iterator[str]:
    """A server that gives every request the same answer; yields its address.

    The answer has the form of Amazon S3.
    """

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            if seen is not None:
                seen.append(self.headers["authorization"])
            self.rfile.read(int(self.headers.get("content-length", 0)))
            error = f"<Error><Code>{code}</Code><Message>m</Message><Token-0>{SECRET}</Token-0></Error>"
            body = f'<?xml version="1.0" encoding="UTF-8"?>\n{error}'.encode() if code else b""
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = answer  # noqa: N815  http.server finds them by name

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(objects, "LIMIT_S", 0.0)
    objects._client.cache_clear()
    yield
    objects._client.cache_clear()


REFUSED = [
    (301, "PermanentRedirect", r"AWS_REGION"),
    (400, "AuthorizationHeaderMalformed", r"AuthorizationHeaderMalformed.*AWS_REGION"),
    (400, "ExpiredToken", r"ExpiredToken.*AWS_SESSION_TOKEN"),
    (400, "InvalidToken", r"InvalidToken.*AWS_SESSION_TOKEN"),
    (403, "RequestTimeTooSkewed", r"RequestTimeTooSkewed.*clock"),
    (403, "SignatureDoesNotMatch", r"SignatureDoesNotMatch.*AWS_SECRET_ACCESS_KEY"),
    (400, "InvalidRequest", r"400 Bad Request: InvalidRequest.*AWS_ENDPOINT_URL"),
    (405, "MethodNotAllowed", r"405 Method Not Allowed: MethodNotAllowed"),
    (404, "NoSuchBucket", "has no bucket"),
]
REQUESTS = {
    "put": lambda: STORE.put_exclusively("a", b"x"),
    "read": lambda: STORE.read("a"),
    "list": STORE.names,
    "delete": lambda: STORE.delete("a"),
}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize(("status", "code", "advice"), REFUSED, ids=[code for _, code, _ in REFUSED])
def test_a_refusal_is_final_and_names_its_cause(
    status: int, code: str, advice: str, request_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(status, code) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(StoreRefuses, match=advice) as refused:
            REQUESTS[request_]()
    assert SECRET not in str(refused.value)
    assert "<" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "InternalError"), (503, "SlowDown"), (429, "TooManyRequests"), (400, "RequestTimeout"), (408, "")],
)
def test_a_busy_store_may_answer_a_restart(status: int, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(status, code) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(NoStore, match=f"gave no answer .*{status} .*{code}") as busy:
            STORE.names()
    assert busy.value.restart_helps


@pytest.mark.parametrize(
    "names", [("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"), ("AWS_ENDPOINT",)]
)
def test_the_journal_and_spark_use_one_address(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(404, "NoSuchBucket") as first:
        for name, value in zip(names, (first, "http://127.0.0.1:1"), strict=False):
            monkeypatch.setenv(name, value)
        with pytest.raises(StoreRefuses):
            STORE.names()
    found = spark_settings(STORE)
    assert found["spark.hadoop.fs.s3a.endpoint"] == first
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"


@pytest.mark.parametrize(
    ("variables", "region"),
    [
        ({}, "us-east-1"),
        ({"AWS_DEFAULT_REGION": "eu-central-1"}, "eu-central-1"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-central-1"}, "eu-west-1"),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-central-1"}, "eu-central-1"),
    ],
)
def test_the_journal_and_spark_sign_for_one_region(
    variables: dict[str, str], region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    with answering(404, "NoSuchBucket", seen) as address:
        for name, value in {"AWS_ENDPOINT_URL": address, **variables}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(StoreRefuses):
            STORE.names()
    assert f"/{region}/s3/" in seen[0]
    assert spark_settings(STORE)["spark.hadoop.fs.s3a.endpoint.region"] == region


def test_a_changed_login_gets_a_new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    store = objects.ObjectStore("bucket", "prefix")
    first = store._client
    assert store._client is first
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "changed")
    assert store._client is not first
