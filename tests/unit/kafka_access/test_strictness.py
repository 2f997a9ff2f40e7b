"""The checks of certificates accept what Kafka's clients and libpq accept.

This holds also from Python 3.13 on.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from oncebench.kafka_access.connection import why_no_tls
from oncebench.kafka_access.forms import tls_context
from oncebench.servers import postgres_certificate
from tests.authority import Authority

HOST = "127.0.0.1"
ADDED = ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN  # by ssl.create_default_context of Python 3.13


@pytest.fixture(autouse=True)
def python_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    older = ssl.create_default_context

    def newer(cafile: str | None = None) -> ssl.SSLContext:
        context = older(cafile=cafile)
        context.verify_flags |= ADDED
        return context

    monkeypatch.setattr(ssl, "create_default_context", newer)


def test_the_context_has_no_check_that_the_clients_lack() -> None:
    assert not tls_context({"security.protocol": "SSL"}).verify_flags & ADDED


def test_a_certificate_without_the_authoritys_key_id_is_accepted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with server(authority.signed("server", more="authorityKeyIdentifier=none\n")) as port:
        assert why_no_tls({"ssl.ca.location": str(authority.certificate)}, HOST, port) is None
    with server(authority.signed("postgres", more="authorityKeyIdentifier=none\n"), request=8) as port:
        dsn = {"host": HOST, "port": str(port), "sslrootcert": str(authority.certificate)}
        assert postgres_certificate.why_refused(dsn) is None


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    trusted, other = Authority(tmp_path / "trusted"), Authority(tmp_path / "other", "other")
    with server(other.signed("server")) as port:
        refusal = why_no_tls({"ssl.ca.location": str(trusted.certificate)}, HOST, port)
    assert refusal is not None
    assert "an authority that is not trusted here" in refusal.why
    with server(other.signed("postgres"), request=8) as port:
        dsn = {"host": HOST, "port": str(port), "sslrootcert": str(trusted.certificate)}
        assert postgres_certificate.why_refused(dsn) == "unable to get local issuer certificate"


@contextmanager
def server(store: Path, request: int = 0) -> Iterator[int]:
    """A TLS server for one connection.

    It answers `request` bytes with S before TLS, as PostgreSQL does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    with closing(socket.create_server((HOST, 0))) as listener:

        def serve() -> None:
            plain, _ = listener.accept()
            with plain, suppress(OSError):
                if request:
                    plain.recv(request)
                    plain.sendall(b"S")
                with context.wrap_socket(plain, server_side=True) as secured:
                    secured.recv(1)  # returns when the client has closed

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()
