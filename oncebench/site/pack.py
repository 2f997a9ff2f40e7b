"""How the page's data is kept small: each text once, objects of one kind as columns, figures with the digits they have.

Promise: what is packed can be unpacked: a text is the words at its numbers with a space between, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# More digits than these no figure here has: runs of one cell differ in the second or third.
DIGITS = 4


class Texts:
    """Texts that are made of the same words again and again: commands, mostly."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self._packed: list[list[int]] = []

    def add(self, text: str) -> int:
        """The number of a text."""
        if text not in self._texts:
            self._texts[text] = len(self._packed)
            self._packed.append([self._words.setdefault(word, len(self._words)) for word in text.split(" ")])
        return self._texts[text]

    def as_json(self) -> dict[str, Any]:
        """`words`, and for each text the numbers of its words."""
        return {"words": list(self._words), "texts": self._packed}


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Rows of values as a list for each name.

    Raises:
        ValueError: a row is longer or shorter than there are names.
    """
    found: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        for name, value in zip(names, row, strict=True):
            found[name].append(value)
    return found


def short(value: float | None, digits: int = DIGITS) -> float | int | None:
    """A figure rounded to so many digits, without a fraction where there is none."""
    if value is None:
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def numbers(keys: Iterable[Any]) -> Mapping[Any, int]:
    """Each key's place among the keys, repeats left out."""
    return {key: number for number, key in enumerate(dict.fromkeys(keys))}
