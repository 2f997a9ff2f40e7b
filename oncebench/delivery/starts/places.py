"""Compares the identity of input and output with the identity that the journal has.

A topic that was deleted and created again has the same name and other records. So has a topic of another cluster. The
journal's entry `places.json` stores what the servers themselves use as identity:

    {"input": {"cluster": "..", "topic_id": ".."}, "output": {"system": "..", "table": ".."}}

Promise: an identity that was recorded never changes unnoticed. What can go wrong: a server that gives no identity is
not compared, nor a part of it that this role may not read any more, if the other parts are equal. A checkpoint of an
older version has no entry; the next start makes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncebench.delivery.starts.gaps import NONE, Gaps
from oncebench.delivery.stores.choose import Place
from oncebench.delivery.stores.entries import put_in_place_of, read_entry, refuse_damaged

_ENTRY = "places.json"
INPUT, OUTPUT = "input", "output"
_GO_ON = {
    INPUT: "To read this topic from its beginning, without the rest of the other one",
    OUTPUT: "If it is the same output, upgraded, or if earlier batches may be missing",
}


class Places:
    """The recorded identities of one checkpoint's input and output.

    Args:
        journal: the journal's folder.
    """

    def __init__(self, journal: Place) -> None:
        self._journal = journal
        self._recorded = _recorded(journal)

    @property
    def known(self) -> bool:
        """Whether anything is recorded."""
        return bool(self._recorded)

    def compare(self, which: str, found: Mapping[str, str], name: str, gaps: Gaps, batch: int | None = None) -> bool:
        """Compares the identity of INPUT or OUTPUT; returns whether it is another one, and accepted.

        Args:
            which: INPUT or OUTPUT.
            found: the identity now; empty if there is none.
            name: what people call the place.
            gaps: the accepted losses.
            batch: see `Gap`.

        Raises:
            RefusedStart: it is another one, and that is not accepted.
        """
        text = self.differs(which, found)
        if text:
            gaps.accept(text, _refusal(which, name, text), batch, when=_GO_ON[which])
        return bool(text)

    def differs(self, which: str, found: Mapping[str, str]) -> str:
        """Returns the recorded parts of INPUT or OUTPUT that differ, see `difference`."""
        return difference(which, self._recorded.get(which, {}), found)

    def record(self, which: str, found: Mapping[str, str]) -> None:
        """Records an identity durably.

        A part that cannot be read any more is kept if the others are equal.
        """
        known = dict(found) if self.differs(which, found) else {**self._recorded.get(which, {}), **found}
        if found and self._recorded.get(which) != known:
            self._recorded[which] = known
            put_in_place_of(self._journal, _ENTRY, self._recorded)

    def forget(self, which: str) -> None:
        """Forgets the identity of INPUT or OUTPUT durably."""
        if self._recorded.pop(which, None) is not None:
            put_in_place_of(self._journal, _ENTRY, self._recorded)


def difference(which: str, recorded: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Returns the recorded parts that differ, as `which/part:was..now`; empty if none does.

    A part that is not found differs if nothing is found, or another part differs, too.
    """
    if found and all(found.get(part, was) == was for part, was in recorded.items()):
        return ""
    return ",".join(
        f"{which}/{part}:{was}..{found.get(part, NONE)}"
        for part, was in sorted(recorded.items())
        if found.get(part, NONE) != was
    )


def _refusal(which: str, name: str, text: str) -> str:
    if which == INPUT:
        return (
            f"{name} is not the topic that this checkpoint has read ({text}): it was deleted and created again, or "
            "bootstrap_servers lead to another cluster. Nothing was read or written. Name the right cluster and topic, "
            "or take a new checkpoint, sink_id and output."
        )
    return (
        f"{name} is not the output that this checkpoint has written ({text}): it was deleted, replaced, restored or "
        "upgraded, or the address leads elsewhere. Nothing was read or written. Name the right output, or take a new "
        "checkpoint, sink_id and output."
    )


def _recorded(journal: Place) -> dict[str, dict[str, str]]:
    try:
        with refuse_damaged(f"{journal}/{_ENTRY}"):
            return {
                str(which): {str(part): str(value) for part, value in parts.items()}
                for which, parts in read_entry(journal, _ENTRY).items()
            }
    except FileNotFoundError:
        return {}
