"""A throw-away certificate authority, for servers and clients of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from oncebench.processes.ports import LOOPBACK

HERE = f"IP:{LOOPBACK},DNS:localhost"


class Authority:
    """A certificate authority in a folder. Its files are PEM: a key and what was signed with it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.certificate = folder, folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl("req", "-x509", *_new_key(self._key), "-out", self.certificate, "-subj", f"/CN={name}", "-days", "2")

    def signed(self, name: str, names: str = HERE, days: int = 2, password: str = "", more: str = "") -> Path:
        """A file with a new private key, encrypted if there is a password, and its certificate.

        `more` are further lines of OpenSSL's extensions.
        """
        key, request, extension = (self._folder / f"{name}.{ending}" for ending in ("key", "csr", "ext"))
        certificate, store = self._folder / f"{name}.crt", self._folder / f"{name}.pem"
        _openssl("req", *_new_key(key), "-out", request, "-subj", f"/CN={name}")
        extension.write_text(f"subjectAltName={names}\n{more}")
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                 "-days", str(days), "-extfile", extension, "-out", certificate)  # fmt: skip
        text = key.read_text()
        if password:
            text = _openssl("pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-in", key, "-passout", "stdin", given=password)
        store.write_text(text + certificate.read_text())
        return store


def _new_key(path: Path) -> tuple[str | Path, ...]:
    return "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path


def _openssl(*arguments: str | Path, given: str | None = None) -> str:
    done = subprocess.run(["openssl", *map(str, arguments)], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
