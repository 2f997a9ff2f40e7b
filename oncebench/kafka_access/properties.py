"""Reads and writes Java properties, as Kafka's own programs take them.

The programs take them as the file of `--command-config` and as server.properties.

Promise: a value may name an environment variable, `${env:NAME}`, as with Kafka's EnvVarConfigProvider. No message
contains a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from oncebench.kafka_access.refused import AccessRefused

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# The characters of a written value that Java would read as something else.
_WRITTEN = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})
_NAME = re.compile(r"(?:\\.|[^\\\s=:])*")
_PROVIDED = re.compile(r"\$\{(\w+):([^}]*)\}")


def read_properties(path: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the settings in a file.

    Raises:
        AccessRefused: the file cannot be read or understood, or names an environment variable that is not set.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AccessRefused(f"the Kafka settings {path} cannot be read: {why}. Correct the path or the file") from None
    if text.startswith("\ufeff"):
        raise AccessRefused(
            f"{path} begins with a byte order mark, which Java reads as a part of the first line. Save the file "
            "without it"
        )
    for line in _logical_lines(text):
        if not line.isascii():  # Java reads Latin-1, most editors write UTF-8
            raise AccessRefused(
                f"{path}: {_name(line)} has a character that is not ASCII, and programs read it differently. Write it "
                "as \\u and its four hexadecimal digits, for example \\u00e4"
            )
    return {name: _provided(name, value, path, environment) for name, value in parsed(text).items()}


def parsed(text: str) -> dict[str, str]:
    """Returns the settings in a text, by the rules of java.util.Properties."""
    found = {}
    for line in _logical_lines(text):
        name = _name(line)
        value = re.sub(r"^\s*[=:]?\s*", "", line[len(name) :], count=1)
        found[_unescaped(name)] = _unescaped(value)
    return found


def line_of(name: str, value: str) -> str:
    """Returns the line of a setting, for java.util.Properties.

    Java reads the line as Latin-1, so it contains ASCII only.

    Args:
        name: a name of Kafka's settings, which needs no escape.
    """
    text = "".join(each if each.isascii() else _in_hex(each) for each in value.translate(_WRITTEN))
    first = "\\" if text.startswith(" ") else ""  # Java skips the space in front of a value
    return f"{name}={first}{text}\n"


def _in_hex(letter: str) -> str:
    """The UTF-16 of a letter, as Java writes it."""
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _name(line: str) -> str:
    name = _NAME.match(line)
    assert name is not None, "the pattern matches an empty text too"
    return name[0]


def _logical_lines(text: str) -> Iterator[str]:
    """Yields lines without comments; a backslash at the end continues a line."""
    begun = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code, letter = found[1], found[2]
        return chr(int(code, 16)) if code else _ESCAPES.get(letter, letter)

    found = re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", plain, text)
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # joins the halves of a letter


def _provided(name: str, value: str, path: Path, environment: Mapping[str, str]) -> str:
    def found(match: re.Match[str]) -> str:
        provider, key = match[1], match[2].removeprefix(":")
        if provider != "env":
            raise AccessRefused(
                f"{path}: {name} takes its value from the provider {provider!r}, and only env is supported. Write "
                "${env:NAME}, and set the environment variable NAME"
            )
        if key not in environment:
            raise AccessRefused(f"{path}: {name} needs the environment variable {key}, which is not set. Set it")
        return environment[key]

    return _PROVIDED.sub(found, value)
