"""Checks stored JSON against a schema, with pydantic, and reports a mismatch in one line.

Promise: `require` accepts only what fits its schema. For anything else its message names the file, the field, and what
was expected, so no later code has to check again. Nothing is converted: "1" and true are no numbers. A schema names the
fields that readers rely on; other fields may be present, unless it is closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, GetPydanticSchema, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, core_schema

from oncebench.errors import UserError

Count = Annotated[int, Field(ge=0, lt=2**63)]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
OBJECT = dict[str, Any]
SCHEMA_VERSION = 1  # raised when a column or a file of the run folder changes its meaning


class RecordError(UserError):
    """A run folder or one of its files cannot be used; the text says why, and what to do."""


def one_of(words: Iterable[str]) -> GetPydanticSchema:
    """Annotates a text that must be one of `words`, which are known only at run time."""
    return GetPydanticSchema(lambda _kind, _make: core_schema.literal_schema([*map(str, words)]))


def refuse_newer(version: object, path: Path, newest: int = SCHEMA_VERSION) -> None:
    """Raises `RecordError` if this code does not know `version`, the schema number in `path`."""
    if type(version) is not int or not 1 <= version <= newest:
        raise RecordError(
            f"{path} has schema {version!r}; this oncebench reads up to {newest}: judge it with a newer one"
        )


def require(item: object, schema: Any, path: Path) -> None:
    """Raises `RecordError` if `item`, read from `path`, does not fit the type `schema`."""
    try:
        _adapter(schema).validate_python(item, strict=True)
    except ValidationError as error:
        raise RecordError(
            f"{path} {_problem(error.errors(include_url=False)[0])}. The file is damaged, or of another version: take "
            "it from a sound copy, or use the oncebench that wrote it"
        ) from None


@cache  # made on first use: every command imports the schemas, few validate with them
def _adapter(schema: Any) -> TypeAdapter[Any]:
    return TypeAdapter(schema)


def _problem(wrong: ErrorDetails) -> str:
    # pydantic marks a name with "[key]", and `schema.py` tags the members of a union with "(...)": neither is a field.
    path = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in wrong["loc"]]
    at = "".join(part for part in path if not re.fullmatch(r"\.(\[key\]|\(.*\))", part)).removeprefix(".")
    found, expected = _short(wrong["input"]), wrong["msg"].removeprefix("Value error, ")
    match wrong:
        case {"type": "missing"}:
            return f"has no {at}"
        case {"type": "extra_forbidden"}:
            return f"has an unknown field {at}"
        case {"loc": (*_, "[key]")}:
            return f"has {at}: {expected}"
    return f"has {at} = {found}: {expected}" if at else f"holds {found}: {expected}"


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 60 else f"{text[:57]}..."
