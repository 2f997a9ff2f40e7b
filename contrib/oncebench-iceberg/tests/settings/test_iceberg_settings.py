"""Wrong settings of a user, with a small server that answers as a REST catalog does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from iceberg_tables import EXACTLY_ONCE, Tables
from oncebench_iceberg.catalogs import rest
from oncebench_iceberg.catalogs.place import place_of
from oncebench_iceberg.catalogs.rest import RestPlace
from oncebench_iceberg.columns import iceberg_schema
from oncebench_iceberg.job import IcebergTable
from oncebench_iceberg.server import check_reachable
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerFactory
from pyspark.sql import types as t

from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.errors import MissingEnvironment

READS = ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"]


class Answers(BaseHTTPRequestHandler):
    """Answers each request by the first part of its path that has an answer.

    An answer is (status, JSON). Other requests get 404.
    """

    answers: ClassVar[dict[str, tuple[int, object]]] = {}

    def do_GET(self) -> None:
        code, body = next((answer for part, answer in self.answers.items() if part in self.path), (404, {}))
        if not code:  # no answer, until the server ends
            self.server.ended.wait()
        text = json.dumps(body).encode()
        self.send_response(code or 503)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture
def uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a catalog without tables."""
    monkeypatch.setattr(Answers, "answers", {"/v1/config": (200, {"defaults": {}, "overrides": {}})})
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.ended = threading.Event()
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.ended.set()
        server.shutdown()


@pytest.mark.parametrize("answers", ["lists its requests", "501"])
def test_a_catalog_that_only_reads_is_refused(uri: str, answers: str) -> None:
    if answers == "501":
        Answers.answers["/v1/namespaces"] = (501, {})
    else:
        Answers.answers["/v1/config"] = (200, {"defaults": {}, "overrides": {}, "endpoints": READS})
    sink = Tables(RestPlace(uri, "shop.t")).sink()
    with pytest.raises(RefusedStart, match=r"does not offer this request\)\. Use a catalog that lets"):
        sink.start(EXACTLY_ONCE, 1, [])
    sink.close()


OAUTH2 = {"type": "oauth2", "oauth2": {"client_id": "a", "client_secret": "b"}}


@pytest.fixture
def log_in(uri: str, monkeypatch: pytest.MonkeyPatch) -> RestPlace:
    """A place whose catalog takes tokens of OAuth2, from the same server."""
    found = {"auth": {**OAUTH2, "oauth2": {**OAUTH2["oauth2"], "token_url": f"{uri}/token"}}}
    monkeypatch.setattr(rest, "settings", lambda: found)
    return RestPlace(uri, "shop.t")


@pytest.mark.parametrize("answer", [(400, {}), (401, {"error": "invalid_client"}), (403, {}), (200, {}), (200, [])])
def test_a_login_that_is_not_accepted_is_refused(log_in: RestPlace, answer: tuple[int, object]) -> None:
    Answers.answers["/token"] = answer
    with pytest.raises(RefusedStart, match=r"does not accept the login\)\. Set PYICEBERG.* part auth of \.pyiceberg"):
        Tables(log_in).sink().identity()


def test_a_login_that_fails_for_a_time_may_pass(log_in: RestPlace) -> None:
    Answers.answers["/token"] = (503, {})
    with pytest.raises(DeliveryFailed, match="Check that it runs") as failed:
        Tables(log_in).sink().identity()
    assert failed.value.restart_helps
    Answers.answers["/token"] = (200, {"access_token": "t", "expires_in": 3600})
    assert Tables(log_in).sink().identity() == {}


def test_a_login_that_does_not_answer_ends(log_in: RestPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "TIMES", (5.0, 0.2))
    Answers.answers["/token"] = (0, {})
    with pytest.raises(DeliveryFailed, match="did not answer"):
        Tables(log_in).sink().identity()


def test_a_token_that_the_catalog_takes_no_longer_is_a_known_error(log_in: RestPlace) -> None:
    Answers.answers |= {"/token": (200, {"access_token": "t", "expires_in": 3600}), "/v1/namespaces": (401, {})}
    with pytest.raises((RefusedStart, DeliveryFailed)):  # pyiceberg asks the session's login for another token
        Tables(log_in).sink().identity()


def test_a_user_who_needs_no_proxy_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    assert rest._no_proxy() == "*"
    monkeypatch.setenv("no_proxy", "mine.example")
    assert rest._no_proxy().split(",")[0] == "mine.example"


class NoAccount(AuthManager):
    """A login by a library with errors of its own."""

    def auth_header(self) -> str:
        raise LookupError("no account")


def test_an_error_of_another_library_is_a_known_one(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    AuthManagerFactory.register("no-account", NoAccount)
    monkeypatch.setattr(rest, "settings", lambda: {"auth": {"type": "no-account"}})
    with pytest.raises(
        DeliveryFailed, match=r"LookupError: no account \(no token for the REST catalog could be"
    ) as failed:
        Tables(RestPlace(uri, "shop.t")).sink().identity()
    assert failed.value.restart_helps


WRONG_YAML = "catalog:\n  default: {a: b}\n"
PROGRAMS = {
    "job": "from oncebench_iceberg.job import IcebergRestTable\n"
    "IcebergRestTable('https://c', 'a.b', sink_id='j').output",
    "pipeline": "from types import SimpleNamespace\nfrom oncebench_iceberg.sink import KINDS\n"
    "KINDS[0].open(SimpleNamespace(output={'output': '/tmp/w/a.b'}, sink_id='j', partitions=1, driver='d'))",
    "run": "from oncebench_iceberg.server import check_reachable\ncheck_reachable('http://127.0.0.1:1/a.b')",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_wrong_file_of_settings_is_named(tmp_path: Path, program: str) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text(WRONG_YAML)
    code = f"try:\n    exec({PROGRAMS[program]!r})\nexcept Exception as error:\n    print(type(error).__name__, error)"
    environment = {**os.environ, "PYICEBERG_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.startswith("MissingEnvironment " if program == "run" else "RefusedStart "), done.stderr
    assert "pyiceberg cannot read its configuration (" in done.stdout
    assert "Correct .pyiceberg.yaml" in done.stdout


def test_the_suite_names_a_wrong_setting(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "settings", lambda: {"auth": {"type": "nope"}})
    with pytest.raises(MissingEnvironment, match=r"Could not load AuthManager .* Correct that table property or sett"):
        check_reachable(f"{uri}/a.b")


def test_two_columns_with_one_path_are_refused() -> None:
    inner = t.StructType([t.StructField("b", t.LongType())])
    columns = t.StructType([t.StructField("a", inner), t.StructField("a.b", t.LongType())])
    with pytest.raises(RefusedStart, match=r"multiple fields for name a\.b.*Rename one of them"):
        iceberg_schema(columns)


@pytest.mark.parametrize(
    "output",
    [
        lambda: IcebergTable("https://user:secret@host/api", "a.b", sink_id="j").output,
        lambda: IcebergTable("s3://key:secret@bucket/wh", "a.b", sink_id="j").output,
        lambda: "https:/user:secret@host/api/a.b",
        lambda: "https://user:secret@host/api",
        lambda: "s3://key:secret@bucket/wh/a.b",
        lambda: "user:secret@host/a.b",
    ],
)
def test_a_login_in_an_address_is_not_shown(output: Callable[[], str]) -> None:
    with pytest.raises(RefusedStart) as refused:
        place_of({"output": output()})
    assert "secret" not in str(refused.value)


def test_a_job_with_the_wrong_one_of_two_descriptions_reads_which_is_right() -> None:
    with pytest.raises(RefusedStart, match=r"is a URI.* or take IcebergRestTable"):
        _ = IcebergTable("file:///data", "a.b", sink_id="j").output


NO_FORM = [t.VariantType(), t.GeographyType(4326), t.GeometryType(4326), t.StructType([])]


@pytest.mark.parametrize("kind", NO_FORM, ids=lambda kind: kind.simpleString())
def test_a_type_that_iceberg_lacks_is_refused_at_any_depth(kind: t.DataType) -> None:
    inner = t.StructType([t.StructField("b", t.MapType(t.StringType(), t.ArrayType(kind)))])
    for each in (kind, inner):
        with pytest.raises(RefusedStart, match=r"column 'a' is .*, which Iceberg's format version 2 has no type for"):
            iceberg_schema(t.StructType([t.StructField("a", each)]))


def test_a_field_with_the_name_of_such_a_type_is_accepted() -> None:
    inner = t.StructType([t.StructField("variant", t.StringType()), t.StructField("geometry", t.StringType())])
    assert len(iceberg_schema(t.StructType([t.StructField("a", inner)])).fields) == 1
