"""Keeps the page's data small: each text once, objects as columns, figures rounded.

Promise: a packed text can be unpacked exactly, whatever it holds: join its words with single spaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Runs of one cell differ in the second or third digit, so a fifth would only be noise.
DIGITS = 4
# The page shows two decimals of a ratio. With four digits, 1.6348 would first become 1.635, and then 1.64.
RATIO_DIGITS = 7


class Texts:
    """Texts that repeat the same words, mostly commands; each word is stored once."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self._packed: list[list[int]] = []

    def add(self, text: str) -> int:
        """Stores a text and returns its number."""
        if text not in self._texts:
            self._texts[text] = len(self._packed)
            self._packed.append([self._words.setdefault(word, len(self._words)) for word in text.split(" ")])
        return self._texts[text]

    def as_json(self) -> dict[str, Any]:
        """`words`, the most frequent first, and `texts`: for each text the numbers of its words.

        So frequent words have short numbers.
        """
        words = list(self._words)
        uses = Counter(number for packed in self._packed for number in packed)
        ranked = sorted(range(len(words)), key=lambda number: (-uses[number], number))
        rank = {number: at for at, number in enumerate(ranked)}
        texts = [[rank[number] for number in packed] for packed in self._packed]
        return {"words": [words[number] for number in ranked], "texts": texts}


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Turns rows of values into a list of values for each name.

    Raises:
        ValueError: a row does not have one value for each name.
    """
    found: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        for name, value in zip(names, row, strict=True):
            found[name].append(value)
    return found


def short(value: float | None, digits: int = DIGITS) -> float | int | None:
    """A figure rounded to some significant digits; an int where nothing follows the point."""
    if value is None:
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def numbers(keys: Iterable[Any]) -> Mapping[Any, int]:
    """Numbers the distinct keys in their order."""
    return {key: number for number, key in enumerate(dict.fromkeys(keys))}
