"""A file of JSON lines: reads its records one by one, and refuses a line that is no record.

Promise: memory holds one line. A record is a line without the white space around it. Empty lines are skipped, and count
as lines. The last line needs no line break. The file is read several times, so a pipe is refused. A file that has
changed since the start of its first reading is refused, too.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import orjson

from loadgen.errors import ConfigError

MAX_EVENT_BYTES = 900_000
"""Of an event with its record and key. Kafka's clients and brokers take 1 MB by default; a row has some fields more."""

BLANK = b" \t\r\n"
"""The white space of JSON."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs begin a file with it. It is no part of the first record."""

FIELDS_SHOWN = 8
"""Of the first record, when no record has the field of the key: one line of a terminal."""


class Line(NamedTuple):
    """A record of the file; `key` is None if the record lacks the field of the key."""

    number: int
    key: bytes | None
    text: str


@dataclass
class RecordFile:
    """A file of JSON lines.

    Attributes:
        path: the file.
        key: the field that gives the key of a record; empty: no record has a key.
    """

    path: Path
    key: str = ""
    _state: tuple[int, int] | None = field(default=None, init=False, repr=False, compare=False)

    def lines(self) -> Iterator[Line]:
        """Yields the records in the order of the file.

        Raises:
            ConfigError: as `texts`, or a line is no record; the message has the line's number.
        """
        for number, text in self.texts():
            yield self._record(number, text)

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Yields the number and the text of each record, unchecked and much faster.

        Raises:
            ConfigError: the file cannot be read, or has changed.
        """
        self.refuse_change()
        if self.path.exists() and not self.path.is_file() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is no regular file, and is read several times. Copy it into a file first")
        try:
            with self.path.open("rb") as file:
                for number in _counted():
                    # One byte more than allowed: a longer line is refused without reading it to its end.
                    raw = file.readline(MAX_EVENT_BYTES + 1)
                    if not raw:
                        self.refuse_change()
                        return
                    text = (raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw).strip(BLANK)
                    if text:
                        yield number, text
        except OSError as error:
            raise self._unreadable(error) from error

    def refuse_change(self) -> None:
        """Raises ConfigError if the file has changed since the first call."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        now = (found.st_size, found.st_mtime_ns)
        self._state = self._state or now
        if now != self._state:
            raise ConfigError(f"{self.path} has changed since it was counted. Do not change the file during a run")

    def count(self) -> int:
        """Reads the whole file; returns the number of its records.

        Raises:
            ConfigError: as `lines`; also if there is no record, or if no record has the field of the key.
        """
        first: Line | None = None
        records, keyed = 0, False
        for line in self.lines():
            first = first or line
            records += 1
            keyed = keyed or line.key is not None
        if first is None:
            raise ConfigError(f"{self.path} has no record. Give a file with one JSON object on each line")
        if self.key and not keyed:
            names = [json.dumps(name, ensure_ascii=False) for name in _parsed(first.text.encode())]
            more = ", ..." if len(names) > FIELDS_SHOWN else ""
            raise ConfigError(
                f"no record of {self.path} has the field {self.key!r}. The fields of its first record are: "
                f"{', '.join(names[:FIELDS_SHOWN])}{more}"
            )
        return records

    def key_in(self, number: int, text: bytes) -> bytes | None:
        """Returns the key of the record in this line.

        Raises:
            ConfigError: the line is no record.
        """
        return self._key(number, text, self._parsed(number, text)) if self.key else None

    def _record(self, number: int, text: bytes) -> Line:
        fields = self._parsed(number, text) if len(text) <= MAX_EVENT_BYTES else {}
        key = self._key(number, text, fields)
        if len(text) > MAX_EVENT_BYTES or len(orjson.dumps(text.decode())) + len(key or b"") > MAX_EVENT_BYTES:
            raise ConfigError(
                f"{self._place(number)} is too long: an event with its record and its key may have "
                f"{MAX_EVENT_BYTES:,} bytes, and each quotation mark and backslash counts twice. Shorten or remove it"
            )
        return Line(number, key, text.decode())

    def _parsed(self, number: int, text: bytes) -> Any:
        try:
            return _parsed(text)
        except RecursionError:
            raise ConfigError(f"{self._place(number)} is nested too deeply: {_beginning(text)}. Remove it") from None
        except ValueError:
            raise ConfigError(f"{self._place(number)} is not JSON: {_beginning(text)}. Correct or remove it") from None

    def _key(self, number: int, text: bytes, fields: Any) -> bytes | None:
        if type(fields) is not dict:
            raise ConfigError(
                f"{self._place(number)} is JSON, but no object: {_beginning(text)}. Write one object on each line"
            )
        value = fields.get(self.key) if self.key else None
        # orjson turns a whole number above 2^64 into a float, and two such keys into one.
        return key_of(json.loads(text)[self.key] if isinstance(value, float) else value)

    def _unreadable(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self.path} cannot be read: {error.strerror}. Give a file of JSON lines")

    def _place(self, number: int) -> str:
        return f"line {number:,} of {self.path}"


def key_of(value: Any) -> bytes | None:
    """Returns the key that a field's value makes; None for null.

    A text stays as it is, and any other value becomes JSON.
    """
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")  # half of a surrogate pair has no bytes; a key only chooses a partition


def _parsed(text: bytes) -> Any:
    """Parses JSON. Raises ValueError or RecursionError."""
    try:
        return orjson.loads(text)
    except ValueError:  # the standard library takes a little more, such as half of a surrogate pair in an escape
        return json.loads(text.decode("utf-8"), parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _beginning(text: bytes, most: int = 40) -> str:
    shown = re.sub(r"[^\x20-\x7e]", ".", text[:most].decode("latin-1"))
    return f"{shown}{'...' if len(text) > most else ''}"


def _counted() -> Iterator[int]:
    number = 0
    while True:
        yield (number := number + 1)
