"""The setting `sasl.jaas.config` of Java clients: a login module and its options.

Promise: no message contains the text of the setting, which holds a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from oncebench.kafka_access.refused import AccessRefused

_PACKAGE = "org.apache.kafka.common.security"
MODULES: Mapping[str, str] = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}
_ENTRY = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?P<options>.*?);?\s*", re.DOTALL)
_OPTION = re.compile(r"""\s*(\w+)\s*=\s*("(?:\\.|[^"\\\n\r])*"|'(?:\\.|[^'\\\n\r])*'|[^\s"';]+)""")
# Java's reader of this setting is a java.io.StreamTokenizer. These are the escapes in its quoted texts.
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def options_of(text: str, mechanism: str, where: str) -> dict[str, str]:
    """Returns the options of the login module.

    Raises:
        AccessRefused: the text has another form, or the module of another mechanism.
    """
    entry = _ENTRY.fullmatch(text)
    if entry is None or entry["flag"].lower() != "required":
        raise AccessRefused(f"{where}: sasl.jaas.config is not of the form {_form(mechanism)}. Correct it")
    if entry["module"] != MODULES[mechanism]:
        module = entry["module"].rpartition(".")[2]
        raise AccessRefused(
            f"{where}: sasl.jaas.config names {module}, and sasl.mechanism {mechanism} needs {MODULES[mechanism]}. "
            "Correct one of them"
        )
    found, rest, at = {}, entry["options"], 0
    while option := _OPTION.match(rest, at):
        found[option[1]] = _unquoted(option[2])
        at = option.end()
    if rest[at:].strip():
        raise AccessRefused(f"{where}: sasl.jaas.config is not of the form {_form(mechanism)}. Correct it")
    return found


def config_of(mechanism: str, options: Mapping[str, str]) -> str:
    """Returns the text of `sasl.jaas.config`."""
    texts = (f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{MODULES[mechanism]} required{''.join(texts)};"


def _form(mechanism: str) -> str:
    names = ("clientId", "clientSecret") if mechanism == "OAUTHBEARER" else ("username", "password")
    return f'{MODULES[mechanism]} required {names[0]}="..." {names[1]}="...";'


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _unquoted(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code, 8)) if code.isdecimal() and code[0] < "8" else _LETTERS.get(code, code)

    return _ESCAPE.sub(plain, text[1:-1]) if text[0] in "\"'" else text
