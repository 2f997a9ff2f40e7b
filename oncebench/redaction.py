"""Finds secrets by the names of settings and by their usual forms in texts, and masks them.

Promise: one rule for settings that are refused and for texts that are masked. A text that is masked again stays the
same. `$NAME` and `${NAME}` are names of variables, so they are no secrets.

Failures: the rule is a guess. It misses a secret that has no such name and no such form, and is in no variable of
the environment with such a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from oncebench.kafka_access.refused import is_secret

MASK = "***"
# Spark hides settings with the first line in their names in its own logs (spark.redaction.regex). The other lines are
# of JDBC drivers, object stores, Pulsar and services with keys. `executorEnv.PWD` is a folder.
_IN_NAME = re.compile(
    r"(?i)secret|password|token|access[._-]?key"
    r"|passwd|passphrase|(?<!env[.])pwd|(account|api|private)[._-]?key|auth[._-]?params"
    r"|(credentials?|(?<![a-z])pass|ssl[.]keystore[.]key|ssl[.]key[.]pem)$"
)
# The end of a name inside a text: `SharedAccessKeyName=` has no secret, and `SharedAccessKey=` has one.
_ENDS = (
    r"(?:secret|password|token|passwd|passphrase|pwd|credentials?|signature|(?<![a-z])pass|(?<![a-z])sig"
    r"|(?:access|account|api|private|secret|shared|subscription)[._-]?key)"
)
# The forms of secrets in a text. The group `value` is the secret.
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        # postgresql://user:secret@host, but not http://host:80/me@example. A password with a `/` is no valid address.
        r"""://[^/?#@\s:\["',<>]*:(?P<value>[^/?#\s"']+(?=@)|(?!\d+(?:[/?#,]|$))[^\s"']+(?=@))""",
        r"""jdbc:oracle:\w+:[^/@\s"']*/(?P<value>[^@\s"']+)@""",
        # password=secret, password="secret", "password": "secret"
        rf"""(?<![\w.-])[\w.-]*{_ENDS}(?:\s*=\s*|["']\s*:\s*)(?P<value>"[^"]*"?|'[^']*'?|\{{[^}}]*\}}|[^\s"'&;]+(?<![.,)]))""",
        r"""\bauthorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?(?P<value>[^\s"',;]+)""",
        r"""\bbearer\s+(?P<value>[\w.~+/=-]{16,})""",
        r"""-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<value>(?s:.+?))(?=-----END|\Z)""",
    )
)
_SWITCHES = ("", "true", "false")
# A mask, and names of variables as `string.Template` reads them.
_STANDS_FOR = re.compile(r"(?i)\*+|\$[a-z_][a-z0-9_]*|\$\{[a-z_][a-z0-9_]*\}", re.ASCII)
# A shorter value of a variable would also match parts of other words.
SHORTEST = 6
# Usual passwords of servers for tests that are words of every message, too. Their forms (`password=..`) are masked.
_WORDS = frozenset({"postgres", "kafka", "spark", "delta", "iceberg", "pravega", "oncebench", "password"})
# Variables of the shell that hold a folder.
_FOLDERS = ("PWD", "OLDPWD")


def names_secret(name: str) -> bool:
    """Whether the value of a setting or variable with this name must not be seen."""
    return bool(_IN_NAME.search(name)) or is_secret(name)


def is_secret_setting(name: str, value: str) -> bool:
    """Whether the name of a setting shows that its value is a secret.

    A switch (such as `true`) is no secret.
    """
    return names_secret(name) and not _is_switch(value)


def stands_for_secret(value: str) -> bool:
    """Whether the whole value is the name of a variable, or a mask."""
    return bool(_STANDS_FOR.fullmatch(value))


def has_secret(text: str) -> bool:
    """Whether a part of the text has the form of a secret."""
    return _masked_forms(text, MASK) != text


def redacted(text: str, mask: str = MASK, environment: Mapping[str, str] | None = None) -> str:
    """Returns the text with a mask in place of each secret.

    Args:
        environment: variables. The values of those with a secret's name are masked, too. None: the
            environment of this process.
    """
    text = _masked_forms(text, mask)
    for name, value in (os.environ if environment is None else environment).items():
        if len(value) < SHORTEST or name in _FOLDERS or value in _WORDS:
            continue
        if names_secret(name) and value in text:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _: mask, text)
    return text


def _is_switch(value: str) -> bool:
    """Whether the value only turns something on or off."""
    return value.lower() in _SWITCHES


def _masked_forms(text: str, mask: str) -> str:
    def put(found: re.Match[str]) -> str:
        start, end = (place - found.start() for place in found.span("value"))
        value = found["value"]
        quote = value[:1] if value[:1] in ('"', "'") else ""
        bare = value.strip(quote or None)
        if _is_switch(bare) or stands_for_secret(bare):
            return found[0]
        return f"{found[0][:start]}{quote}{mask}{quote}{found[0][end:]}"

    for form in _FORMS:
        text = form.sub(put, text)
    return text
