"""Checks files of certificates and keys.

All clients read PEM, and only Java reads JKS and PKCS12.

Promise: a refusal has the commands that convert the file. A key that would make a client ask for its passphrase at a
terminal is refused.
"""

from __future__ import annotations

import re
import shlex
from base64 import b64decode
from pathlib import Path

from oncebench.kafka_access.refused import AccessRefused

_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_KEY = re.compile(r"-----BEGIN (ENCRYPTED |[A-Z]+ )?PRIVATE KEY-----([^-]*)")
# The object identifier of PBES2 (1.2.840.113549.1.5.13), OpenSSL's default. Kafka's Java client asks the JVM for an
# algorithm of this name, and Java 17 has none.
_PBES2 = bytes.fromhex("06092a864886f70d01050d")


def refuse_other_form(kind: str, path: Path, form: str, where: str) -> None:
    """Refuses a store that is not PEM, with the commands that convert it.

    Args:
        kind: `truststore` or `keystore`.
        form: the store's type in the settings.

    Raises:
        AccessRefused: see above.
    """
    if form.upper() == "PEM":
        return
    if _is_pem(path):
        raise AccessRefused(f"{where}: the {kind} {path} is in PEM form. Set ssl.{kind}.type=PEM")
    target = "ca.pem" if kind == "truststore" else "client.pem"
    source, commands = shlex.quote(str(path)), []
    if form.upper() == "JKS":
        commands = [f"keytool -importkeystore -srckeystore {source} -destkeystore store.p12 -deststoretype PKCS12"]
        source = "store.p12"
    commands.append(f"openssl pkcs12 -in {source} {'-nokeys' if kind == 'truststore' else '-nodes'} -out {target}")
    raise AccessRefused(
        f"{where}: the {kind} {path} is of type {form}, which not every client can read. Convert it to PEM "
        f"({'; '.join(commands)}), then set ssl.{kind}.type=PEM and ssl.{kind}.location={target}"
    )


def check_authorities(path: Path, where: str) -> None:
    """Raises AccessRefused if the file has no certificate."""
    if _CERTIFICATE not in _text(path, "truststore", where):
        raise AccessRefused(f"{where}: the truststore {path} has no certificate in PEM form. Correct the file")


def check_own_certificate(path: Path, has_password: bool, where: str) -> None:
    """Checks a file with a client's certificates and its key.

    Raises:
        AccessRefused: a part is missing, the key has a form that Java does not read, or its password is missing or
            has no use.
    """
    text = _text(path, "keystore", where)
    key = _KEY.search(text)
    if _CERTIFICATE not in text or key is None:
        raise AccessRefused(
            f"{where}: the keystore {path} must have the client's certificates and its private key in PEM form. Write "
            "both into this file"
        )
    form, source = (key[1] or "").strip(), shlex.quote(str(path))
    if form not in ("", "ENCRYPTED"):
        raise AccessRefused(
            f"{where}: the key in {path} is in the form {form} PRIVATE KEY, which Java does not read. Convert it "
            f"(openssl pkcs8 -topk8 -nocrypt -in {source} -out key.pem), and write it into the keystore with the "
            "certificates"
        )
    if form == "" and has_password:  # Java would decrypt it
        raise AccessRefused(
            f"{where}: the key in {path} is not encrypted, so it has no password. Remove ssl.key.password"
        )
    if form == "ENCRYPTED" and not has_password:
        raise AccessRefused(f"{where}: the key in {path} is encrypted. Give its password as ssl.key.password")
    if form == "ENCRYPTED" and _PBES2 in _decoded(key[2]):
        raise AccessRefused(
            f"{where}: the key in {path} is encrypted with PBES2, which Kafka's Java client does not read. Convert it "
            f"(openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in {source} -out key.pem), and write it into the keystore with "
            "the certificates"
        )


def _is_pem(path: Path) -> bool:
    try:
        return _CERTIFICATE in path.read_text("latin-1")
    except OSError:
        return False


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text)
    except ValueError:  # a client then says that it cannot read the key
        return b""


def _text(path: Path, kind: str, where: str) -> str:
    try:
        return path.read_text("latin-1")
    except OSError as error:
        raise AccessRefused(
            f"{where}: the {kind} {path} cannot be read: {error.strerror}. Correct ssl.{kind}.location or the file's "
            "permissions"
        ) from None
