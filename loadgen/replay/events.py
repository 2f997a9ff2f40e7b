"""The events of a load that replays a file: their order, their times and their bytes.

Event n of the load is record n of the file, counted from 0; after the last record the file begins again. The events
are due in that order at the load's rate. In the ledger, event n is event n % 100 of session n // 100, so each hundred
belongs to one generator (`loadgen.share`).

An event is a JSON object:

| field | meaning |
|---|---|
| id | the line's number, such as `17`; `17@2` in the second pass; with the load's prefix before it |
| load | the load's seed, in hexadecimal |
| n | the number of the event |
| scheduled_at | when the event is due, epoch µs |
| record | the line as a text: each byte of it is kept |
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import orjson

from loadgen.errors import ConfigError
from loadgen.pacing import Shape
from loadgen.replay.file import RecordFile
from loadgen.schedule import SESSIONS_PER_BLOCK, Block
from loadgen.session import EVENTS_PER_SESSION


def schedule_in_order(events: int, shape: Shape) -> Iterator[Block]:
    """Events 0, 1, 2, ..., each due when the shape has that many events due."""
    last_us = 0
    step = SESSIONS_PER_BLOCK * EVENTS_PER_SESSION
    for first in range(0, events, step):
        number = np.arange(first, min(first + step, events), dtype=np.int64)
        due_us = np.rint(shape.inverse(number.astype(np.float64)) * 1e6).astype(np.int64)
        # A shape's inverse may decrease by a rounding error where its pieces meet.
        due_us = np.maximum.accumulate(due_us).clip(min=last_us)
        last_us = int(due_us[-1])
        session, seq = np.divmod(number, EVENTS_PER_SESSION)
        yield Block(session.astype(np.uint32), seq.astype(np.uint8), due_us)


class Replay:
    """Encodes events in their order; it reads the file as far as the events need.

    Args:
        seed: of the load.
        prefix: of the ids, so that two loads of one file have different ids.
    """

    def __init__(self, file: RecordFile, seed: int, prefix: str = "") -> None:
        self._file, self._load, self._prefix = file, f"{seed:x}", prefix
        self._lines = self._all_passes()
        self._next = 0

    def encode(
        self, session: npt.NDArray[np.uint32], seq: npt.NDArray[np.uint8], scheduled_us: npt.NDArray[np.int64]
    ) -> tuple[list[bytes | None], list[bytes]]:
        """Returns keys and values of these events, which come after all earlier ones.

        Raises:
            ConfigError: the file has changed since it was counted.
        """
        numbers = (session.astype(np.int64) * EVENTS_PER_SESSION + seq).tolist()
        records = [self._record(number) for number in numbers]
        self._file.refuse_change()  # so each of these lines was checked when it was counted
        keys, values = list[bytes | None](), list[bytes]()
        for number, due_us, (at, suffix, text) in zip(numbers, scheduled_us.tolist(), records, strict=True):
            name = f"{self._prefix}{at}{suffix}"
            event = {"id": name, "load": self._load, "n": number, "scheduled_at": due_us, "record": text.decode()}
            keys.append(self._file.key_in(at, text))
            values.append(orjson.dumps(event))
        return keys, values

    def _record(self, number: int) -> tuple[int, str, bytes]:
        while self._next < number:  # of other generators
            next(self._lines)
            self._next += 1
        self._next += 1
        return next(self._lines)

    def _all_passes(self) -> Iterator[tuple[int, str, bytes]]:
        number = 0
        while True:
            number += 1
            suffix = "" if number == 1 else f"@{number}"
            text = None
            for at, text in self._file.texts():
                yield at, suffix, text
            if text is None:
                raise ConfigError(f"{self._file.path} has no record any more. Do not change the file during a run")
