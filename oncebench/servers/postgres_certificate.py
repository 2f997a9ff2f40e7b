"""Finds out why the certificate of a PostgreSQL server is refused.

The module exists because libpq has one text for all causes.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # PostgreSQL's protocol, SSLRequest
_LIMIT_S = 3.0
_SYSTEM = "system"  # libpq's name for the authorities of the operating system


def why_refused(parameters: Mapping[str, str]) -> str | None:
    """Returns OpenSSL's reason, for example `certificate has expired`; None if there is none.

    Args:
        parameters: of the DSN. A DSN with several hosts has no reason, because it is unknown which host failed.
    """
    host = parameters.get("hostaddr") or parameters.get("host", "")
    port, authorities = parameters.get("port", "5432"), parameters.get("sslrootcert", _SYSTEM)
    if not host or "," in host or host.startswith(("/", "@")) or not port.isdecimal():
        return None
    with suppress(OSError):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as libpq; create_default_context may be stricter
        if authorities == _SYSTEM:
            context.load_default_certs()
        else:
            context.load_verify_locations(authorities)
        context.check_hostname = False  # libpq names a wrong host name itself
        with socket.create_connection((host, int(port)), timeout=_LIMIT_S) as plain:
            plain.sendall(_SSL_REQUEST)
            if plain.recv(1) == b"S":
                try:
                    context.wrap_socket(plain, server_hostname=host).close()
                except ssl.SSLCertVerificationError as error:
                    return error.verify_message
    return None
