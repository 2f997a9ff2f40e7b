"""What stored JSON must look like: pydantic's judgement of an object against a type, said in one line.

Promise: `require` lets pass only what fits its form, and says of anything else which field of which file is wrong and
what was expected, so that nothing behind it has to look again. Nothing is converted on the way: "1" and true are no
numbers. A form names what readers rely on; other fields may be there, unless it is closed.
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


class RecordError(UserError):
    """A run folder, or a file of it, that can't be judged; the text says what, where, and what to do."""


def one_of(words: Iterable[str]) -> GetPydanticSchema:
    """The mark of a text that is one of some words which are known only at run time."""
    return GetPydanticSchema(lambda _kind, _make: core_schema.literal_schema([*words]))


def require(item: object, form: Any, path: Path) -> None:
    """Raise `RecordError` if `item`, read from `path`, does not fit `form`, a type such as those in `parts`."""
    try:
        _judge(form).validate_python(item, strict=True)
    except ValidationError as error:
        raise RecordError(
            f"{path} {_says(error.errors(include_url=False)[0])}; it is damaged or of another version: take it from a "
            "sound copy, or use the oncebench that wrote it"
        ) from None


@cache  # made when first asked for: every command imports the forms, few judge by them
def _judge(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


def _says(wrong: ErrorDetails) -> str:
    # "[key]" is pydantic's mark of a name, "(...)" the tag of a union in `parts`: neither is a field.
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
    return f"says {at} = {found}: {expected}" if at else f"holds {found}: {expected}"


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 60 else f"{text[:57]}..."
