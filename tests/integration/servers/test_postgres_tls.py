"""The user's own PostgreSQL with sslmode=verify-full is used over TLS.

A server that cannot be trusted is refused within ten seconds, and the message names the cause.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote_plus

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oncebench.errors import MissingEnvironment
from oncebench.servers.postgres import SERVICE, PostgresServer
from oncebench.sinks.postgres.connection import VARIABLE, connect
from oncebench.sinks.postgres.sink import PostgresSink
from tests import COMMAND, ROOT
from tests.authority import Authority
from tests.integration.servers.tls_front import tls_front

pytestmark = pytest.mark.integration
LIMIT_S = 10.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def password(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The server's password, which libpq takes from the environment."""
    found = str(conninfo_to_dict(server.dsn)["password"])
    monkeypatch.setenv("PGPASSWORD", found)
    yield found


def port_of(server: PostgresServer) -> int:
    return int(str(conninfo_to_dict(server.dsn)["port"]))


def dsn(port: int, authority: Authority) -> str:
    return make_conninfo(
        "", host="localhost", hostaddr="127.0.0.1", port=port, user="postgres", dbname="postgres",
        sslmode="verify-full", sslrootcert=str(authority.certificate),
    )  # fmt: skip


def test_a_verified_server_is_used_over_tls(
    server: PostgresServer, authority: Authority, password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_front(port_of(server), authority.signed("server")) as port:
        monkeypatch.setenv(VARIABLE, dsn(port, authority))
        with SERVICE.open(tmp_path) as opened, connect("test") as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert opened.theirs is not None
    assert "sslmode=verify-full" in opened.theirs
    assert password not in opened.theirs


REFUSED = {
    "wrong authority": r"certificate verify failed: (self-signed|unable to get local issuer)",
    "expired certificate": r"certificate verify failed: certificate has expired",
    "wrong host name": r'server certificate for "elsewhere".* does not match host name "localhost"',
    "no TLS": r"server does not support SSL, but SSL was required",
    "wrong password": r"password authentication failed",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_server_that_cannot_be_trusted_is_refused_by_its_cause(
    server: PostgresServer, authority: Authority, password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:  # fmt: skip
    store = {
        "expired certificate": lambda: authority.signed("expired", days=-1),
        "wrong host name": lambda: authority.signed("other", "DNS:elsewhere"),
    }.get(case, lambda: authority.signed("server"))()
    trusted = Authority(tmp_path, "strange") if case == "wrong authority" else authority
    if case == "wrong password":
        monkeypatch.setenv("PGPASSWORD", "canary-7f3a")
    with tls_front(port_of(server), store) as port:
        monkeypatch.setenv(VARIABLE, dsn(port_of(server) if case == "no TLS" else port, trusted))
        began = time.monotonic()
        with pytest.raises(MissingEnvironment, match=REFUSED[case]) as refused, SERVICE.open(tmp_path):
            pass
        assert time.monotonic() - began < LIMIT_S
    assert password not in str(refused.value)
    assert "canary" not in str(refused.value)


def test_sparks_own_writer_checks_the_certificate_as_libpq_does(
    server: PostgresServer, authority: Authority, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_front(port_of(server), authority.signed("server")) as port:
        address = dsn(port, authority)
        urls = []
        for given in (address, make_conninfo("", **without_tls(address))):
            monkeypatch.setenv(VARIABLE, given)
            urls.append(unquote_plus(PostgresSink("rows", "it", 1)._jdbc()["url"]))
            monkeypatch.setenv("PGSSLMODE", "verify-full")
            monkeypatch.setenv("PGSSLROOTCERT", str(authority.certificate))
    for url in urls:
        assert "sslmode=verify-full" in url
        assert f"sslrootcert={authority.certificate}" in url
        assert password not in url


def without_tls(address: str) -> dict[str, str]:
    return {name: str(value) for name, value in conninfo_to_dict(address).items() if not name.startswith("ssl")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_a_kill_is_kept_over_tls_and_leaves_no_password(
    server: PostgresServer, authority: Authority, password: str, tmp_path: Path
) -> None:
    with tls_front(port_of(server), authority.signed("server")) as port:
        done = subprocess.run(
            [*COMMAND, "run", "--sink", "postgres",
             "--guarantee", "exactly-once", "--rate", "200", "--duration", "5", "--warmup", "0",
             "--max-events-per-batch", "100", "--fault", "after-prepare:kill", "--postgres", dsn(port, authority),
             "--work-dir", "work", "--json", "report.json"],
            capture_output=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=500, check=False,
            text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] == "kept"
    assert "sslmode=verify-full" in report["reproduce"]
    assert password not in done.stdout + done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file() and password.encode() in path.read_bytes()] == []
