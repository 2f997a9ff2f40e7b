"""What a stored JSON object must look like: small tables of fields and their types, and the check against them.

Promise: `require` lets pass only what fits its form, and says of anything else which field of which file is wrong and
what was expected, so that nothing behind it has to look again. A form names what readers rely on; other fields may
be there, unless it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from oncebench.errors import UserError


class RecordError(UserError):
    """A run folder, or a file of it, that can't be judged; the text says what, where, and what to do."""


@dataclass(frozen=True)
class Kind:
    """A single value; `name` says to people what it must be."""

    name: str
    fits: Callable[[Any], bool]


TEXT = Kind("a text", lambda item: type(item) is str)


@dataclass(frozen=True)
class Fields:
    """An object with the fields `must`, maybe those of `may`, and no others if it is `closed`."""

    must: Mapping[str, Form]
    may: Mapping[str, Form] = field(default_factory=dict)
    closed: bool = False


@dataclass(frozen=True)
class Items:
    """A list of equal things."""

    each: Form


@dataclass(frozen=True)
class Values:
    """An object whose values are equal things; `names`: what its names must be."""

    each: Form
    names: Kind = TEXT


@dataclass(frozen=True)
class Maybe:
    """A thing or null."""

    of: Form


@dataclass(frozen=True)
class Cases:
    """An object whose form depends on what it says of itself: `which` names one of `forms`, all others fit `common`."""

    common: Fields
    which: Callable[[Mapping[str, Any]], str]
    forms: Mapping[str, Fields]


Form = Union[Kind, Fields, Items, Values, Maybe, Cases]  # noqa: UP007  # `|` needs the classes before they are there


def one_of(words: Collection[str]) -> Kind:
    """One of some words."""
    return Kind(f"one of {', '.join(words)}", lambda item: isinstance(item, str) and item in words)


_INT64 = range(-(2**63), 2**63)
TRUTH = Kind("true or false", lambda item: type(item) is bool)
INTEGER = Kind("a whole number", lambda item: type(item) is int)
WHOLE = Kind("a whole number of 64 bits", lambda item: type(item) is int and item in _INT64)
COUNT = Kind("a whole number from 0", lambda item: type(item) is int and 0 <= item < 2**63)
NUMBER = Kind("a number", lambda item: type(item) in (int, float))
ANYTHING = Fields({})


def require(item: object, form: Form, path: Path) -> None:
    """Raise `RecordError` if `item`, read from `path`, does not fit `form`."""
    for wrong in _mismatches(item, form, ""):
        raise RecordError(
            f"{path} {wrong}; it is damaged or of another version: take it from a sound copy, or use the oncebench "
            "that wrote it"
        )


def _mismatches(item: Any, form: Form, at: str) -> Iterator[str]:
    match form:
        case Kind(name, fits):
            if not fits(item):
                yield _says(item, name, at)
        case Maybe(of):
            if item is not None:
                yield from _mismatches(item, of, at)
        case Items(each):
            if type(item) is not list:
                yield _says(item, "a list", at)
            else:
                for number, value in enumerate(item):
                    yield from _mismatches(value, each, f"{at}[{number}]")
        case _ if type(item) is not dict:
            yield _says(item, "an object", at)
        case Values(each, names):
            for name, value in item.items():
                if not names.fits(name):
                    yield f"has {_below(at, name)}, where {names.name} was expected"
                yield from _mismatches(value, each, _below(at, name))
        case Cases(common, which, forms):
            yield from _mismatches(item, common, at)
            if (chosen := forms.get(which(item))) is not None:
                yield from _mismatches(item, chosen, at)
        case Fields(must, may, closed):
            yield from (f"has no {_below(at, name)}" for name in must if name not in item)
            for name, each in {**must, **may}.items():
                if name in item:
                    yield from _mismatches(item[name], each, _below(at, name))
            if closed:
                yield from (f"has an unknown field {_below(at, name)}" for name in item if name not in {*must, *may})


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _says(item: object, wanted: str, at: str) -> str:
    return f"says {at} = {_short(item)}, {wanted} was expected" if at else f"holds {_short(item)}, not {wanted}"


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 60 else f"{text[:57]}..."
