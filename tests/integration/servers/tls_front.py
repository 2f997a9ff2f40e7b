"""TLS in front of a PostgreSQL that was built without it."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oncebench.processes.ports import LOOPBACK

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
_PART = 65536


@contextmanager
def tls_front(server: int, store: Path) -> Iterator[int]:
    """Decrypts connections and passes them to the server's port; yields its own port.

    Args:
        store: a PEM file with the key and the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=_accept, args=(listener, context, server), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)  # ends accept()


def _accept(listener: socket.socket, context: ssl.SSLContext, server: int) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, context, server), daemon=True).start()


def _serve(client: socket.socket, context: ssl.SSLContext, server: int) -> None:
    with suppress(OSError), client:
        while client.recv(len(_SSL_REQUEST), socket.MSG_WAITALL) != _SSL_REQUEST:
            client.sendall(b"N")  # to a request of another encryption
        client.sendall(b"S")
        with (
            context.wrap_socket(client, server_side=True) as secured,
            socket.create_connection((LOOPBACK, server)) as plain,
        ):
            while _passed_on(secured, plain):
                pass


def _passed_on(secured: ssl.SSLSocket, plain: socket.socket) -> bool:
    ready = [secured] if secured.pending() else select.select([secured, plain], [], [])[0]
    for source, target in ((secured, plain), (plain, secured)):
        if source in ready:
            part = source.recv(_PART)
            if not part:
                return False
            target.sendall(part)
    return True
