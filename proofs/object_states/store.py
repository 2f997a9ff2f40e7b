"""The model of an object store, behind the calls of the real client (`obstore`).

The rules:

* A put is atomic, and durable when it is answered. There is no rename.
* A conditional put (`mode="create"`) is refused if the name exists.
* A list has every finished put.
* A put without an answer happens at once, later, or never. Nothing orders two puts whose answers have not come.

Three rules can be broken on purpose: the condition is ignored, a list lags behind, or Spark's logs replace entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from obstore.exceptions import AlreadyExistsError, GenericError

NEVER, DONE, LATE = "never", "done", "late"
SPARK = "Spark's "


class Killed(BaseException):
    """The driver was killed; no later request of it reaches the store."""


@dataclass(frozen=True)
class Cut:
    """What ends or disturbs a driver at one of its requests.

    Attributes:
        request: its number, from 0.
        outcome: whether the request happens although no answer comes: NEVER, DONE or LATE.
        late: for LATE, the number of requests that come first.
        kill: whether the driver dies; otherwise only the answer is lost.
    """

    request: int
    outcome: str
    late: int = 0
    kill: bool = True


@dataclass
class Objects:
    """All objects of the store, and the puts that are still on their way.

    Attributes:
        content: by name.
        pending: (requests that come first, name, content, whether the put is conditional).
        ignores_condition: a conditional put replaces what is there.
        list_lags: a list of the journal lacks the newest put.
        newest: the name of the newest put.
    """

    content: dict[str, bytes] = field(default_factory=dict)
    pending: list[tuple[int, str, bytes, bool]] = field(default_factory=list)
    ignores_condition: bool = False
    list_lags: bool = False
    newest: str = ""

    def arrive(self) -> None:
        """One request passes; late puts whose time has come happen before it."""
        due = [put for put in self.pending if put[0] == 0]
        self.pending = [(put[0] - 1, put[1], put[2], put[3]) for put in self.pending if put[0] > 0]
        for _, name, content, conditional in due:
            self.put(name, content, conditional)

    def put(self, name: str, content: bytes, conditional: bool) -> bool:
        """Puts an object; returns whether the store has taken it."""
        if conditional and name in self.content and not self.ignores_condition:
            return False
        self.content[name], self.newest = content, name
        return True


class Client:
    """One driver's client.

    Args:
        objects: of the store.
        before: is called before each request.
        cut: what happens to this driver.
    """

    def __init__(self, objects: Objects, before: Callable[[], None] = lambda: None, cut: Cut | None = None) -> None:
        self.objects, self._before, self._cut = objects, before, cut
        self.requests: list[str] = []
        self._of = ""
        self._dead = False

    @contextmanager
    def spark(self) -> Iterator[Client]:
        """Requests inside are Spark's own, and are named so."""
        self._of = SPARK
        try:
            yield self
        finally:
            self._of = ""

    def _request(self, what: str, late: Callable[[int], None] | None = None) -> str:
        """Makes way for other drivers and late puts; returns what happens to this request."""
        if self._dead:
            raise Killed
        self._before()
        self.objects.arrive()
        self.requests.append(f"{self._of}{what}")
        cut = self._cut
        if cut is None or cut.request != len(self.requests) - 1:
            return ""
        if cut.outcome == LATE and late is not None:
            late(cut.late)
        self._dead = cut.kill
        return cut.outcome

    def _end(self, outcome: str) -> None:
        if outcome:
            if self._dead:
                raise Killed
            raise GenericError("connection closed before message completed")

    def put(self, key: str, content: bytes, mode: str = "overwrite", use_multipart: bool = False) -> None:
        del use_multipart
        conditional = mode == "create"

        def late(requests: int) -> None:
            self.objects.pending.append((requests, key, content, conditional))

        outcome = self._request("put", late)
        taken = self.objects.put(key, content, conditional) if outcome in ("", DONE) else True
        self._end(outcome)
        if not taken:
            raise AlreadyExistsError(key)

    def get(self, key: str) -> Any:
        self._end(self._request("get"))
        if key not in self.objects.content:
            raise FileNotFoundError(key)
        return _Body(self.objects.content[key])

    def list(self, prefix: str, offset: str | None = None) -> Iterator[Sequence[dict[str, str]]]:
        self._end(self._request("list"))
        hidden = self.objects.newest if self.objects.list_lags and prefix.endswith("/journal") else ""
        names = (name for name in self.objects.content if name.startswith(f"{prefix}/") and name != hidden)
        yield [{"path": name} for name in sorted(names) if name > (offset or "")]

    def delete(self, key: str) -> None:
        outcome = self._request("delete")
        if outcome in ("", DONE):
            self.objects.content.pop(key, None)
        self._end(outcome)


@dataclass(frozen=True)
class _Body:
    content: bytes

    def bytes(self) -> bytes:
        return self.content
