"""Refuses a start that finds a loss, unless the operator accepts exactly that loss.

A refusal prints the loss as a short text, for example `input/0:1000..1999`. An operator who wants to go on without that
part gives the text back, as `accept_gap`. The journal stores each accepted text in an entry `gap-000000.json`.

Promise: only a loss with exactly the accepted text passes. A loss that has grown meanwhile is refused again. An entry
is durable before anything is changed, so a start that dies in between is repeated by the next one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores.choose import Place, store_of
from oncebench.delivery.stores.entries import put_exclusively, read_entry, refuse_damaged

# Stands for a place or a batch that is not there.
NONE = "none"
GO_ON = "To go on without what is lost"
_ENTRY = re.compile(r"gap-(\d{6,})\.json")


@dataclass(frozen=True)
class Gap:
    """A loss that was accepted.

    Attributes:
        text: the loss, as the refusal printed it.
        batch: the open batch that is not compared with its first run. The acceptance has changed its input, or its rows
            cannot be read. None if every batch is compared.
    """

    text: str
    batch: int | None


class Gaps:
    """The accepted losses of one checkpoint.

    Args:
        journal: the journal's folder.
        accepted: the text that this start was given, if any.
    """

    def __init__(self, journal: Place, accepted: str | None) -> None:
        self._journal = journal
        self._asked = None if accepted is None else accepted.strip()
        self._known = _recorded(journal)
        self.new: list[Gap] = []

    def accept(self, text: str, refusal: str, batch: int | None = None, when: str = GO_ON) -> None:
        """Returns if this loss is accepted, by this start or by the newest one that accepted any.

        The second case is a start that died before it had moved on. An older text is not enough: the same loss came
        again.

        Args:
            text: see `Gap`.
            refusal: what is wrong and what to do, without the acceptance.
            batch: see `Gap`.
            when: the beginning of the sentence that gives the text: when to accept, and what that means.

        Raises:
            RefusedStart: the loss is not accepted.
        """
        self.choose(refusal, {text: when}, batch)

    def choose(self, refusal: str, texts: Mapping[str, str], batch: int | None = None) -> str:
        """Returns the accepted text of a loss that has several ways to go on; see `accept`.

        Args:
            refusal: see `accept`.
            texts: text -> the beginning of the sentence that gives it.
            batch: see `Gap`.

        Raises:
            RefusedStart: none of the texts is accepted.
        """
        if self._known and self._known[-1].text in texts:
            return self._known[-1].text
        if self._asked is None or self._asked not in texts:
            ways = [f"{when}, give back exactly this text as accept_gap or --accept-gap: {text}"
                    for text, when in texts.items()]  # fmt: skip
            raise RefusedStart(f"{refusal} {' '.join(ways)}")
        text = self._asked
        gap = Gap(text, batch)
        number = len(self._known)
        while not put_exclusively(
            self._journal, f"gap-{number:06d}.json", {"text": text, "batch": batch, "t_us": time.time_ns() // 1000}
        ):
            number += 1
        self._known.append(gap)
        self.new.append(gap)
        return text

    def changed(self, batch: int) -> bool:
        """Whether a replay of this batch is not compared with its first run."""
        return any(gap.batch == batch for gap in self._known)

    def refuse_unknown(self) -> None:
        """Raises RefusedStart if this start was given a text that fits no loss."""
        if self._asked is not None and all(gap.text != self._asked for gap in self._known):
            raise RefusedStart(
                f"accept_gap is {self._asked!r}, and this start found no such loss. Nothing was read or written. "
                "Remove accept_gap or --accept-gap, or give the text of the newest refusal."
            )


def _recorded(journal: Place) -> list[Gap]:
    found = []
    for name in sorted(filter(_ENTRY.fullmatch, store_of(journal).names())):
        with refuse_damaged(f"{journal}/{name}"):
            entry = read_entry(journal, name)
            found.append(Gap(str(entry["text"]), entry["batch"]))
    return found
