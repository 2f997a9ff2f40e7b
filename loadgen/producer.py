"""The open loop: sends each event at its scheduled time and keeps the ledger.

The schedule does not wait for Kafka. While the broker is away, the client still takes events until its queue is full.
Then the loop has to wait, and the wait shows as lateness, which counts from the scheduled time. A late event is still
sent.

One thread does everything. A second thread would share the interpreter's lock, and the wait for that lock (5 ms per
switch) makes events late.
"""

import gc
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from threading import Event

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from loadgen.client import connect, number_setting, partition_count, reason
from loadgen.config import LoadConfig
from loadgen.errors import ConfigError
from loadgen.ledger import Ledger
from loadgen.plan import plan_load
from loadgen.replay.events import Replay
from loadgen.session import encode, next_step, partitions
from loadgen.status import Status, Summary, lateness
from loadgen.workloads import WORKLOADS, Order
from oncebench.kafka_repair.addresses import Repair

TICK_S = 0.001
"""Shortest sleep. Events that fall due meanwhile go out together: at most 1 ms late, and no busy core."""

SLICE = 256
"""Events that share one `sent_us` and go out between two polls for answers: well under 2 ms of work."""

STATUS_EVERY_US = 250_000

FLAT_OUT_WINDOW = 100_000
"""Limit of unanswered events when all are due at once. A longer queue needs memory and is not faster."""

FLUSH_GRACE_S = 10.0
"""Extra time after `delivery.timeout.ms`, when librdkafka itself reports every remaining event."""

UNKNOWN_OFFSET = -1
"""In the ledger: the event is in the topic, at an offset that Kafka did not report."""

BY_KEY = -1
"""In place of a partition: librdkafka's PARTITION_UA, for which the key decides."""

Stop = Event | Callable[[], bool]

Encoder = Callable[
    [npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.int64]],
    tuple[Sequence[str | bytes | None], Sequence[str | bytes]],
]
"""Returns keys and values of events, from columns of the ledger: session, seq, scheduled_us."""


def run_load(
    config: LoadConfig,
    stop: Stop | None = None,
    on_status: Callable[[Status], None] | None = None,
    abandon: Stop | None = None,
    started_us: int | None = None,
) -> Summary:
    """Runs the load of `config` and waits until Kafka has answered for every event.

    Args:
        config: the load.
        stop: checked at least every 0.25 s; when true (or set), sending ends and the answers are still awaited.
        on_status: called every 0.25 s in this thread; the time that it takes makes events late.
        abandon: checked like `stop`; when true, the waiting ends and unanswered events count as unknown.
        started_us: schedule time 0 in epoch µs; None: now, or as several generators agree.

    Raises:
        ConfigError, LoadError: before anything is sent.
        LedgerError: the ledger cannot be created.

    Later failures are in the summary: failed events, and `error` if the load ended before its plan.
    """
    drain_s = number_setting(config, "delivery.timeout.ms") / 1e3 + FLUSH_GRACE_S
    producer = connect(config)
    clock = anchored_clock()
    ledger = plan_load(config, clock, _question(stop), started_us)
    load = _Load(config, producer, ledger, clock, on_status or (lambda _status: None))
    with _collector_off():
        load.send(_question(stop))
        load.drain(drain_s, _question(abandon))
    return load.summary()


def _encoder(config: LoadConfig) -> Encoder:
    """Returns the function that encodes consecutive events."""
    if config.replayed is not None:
        return Replay(config.replayed.file, config.seed, config.replayed.prefix).encode
    return partial(encode, config.seed, record_bytes=config.record_bytes)


def anchored_clock() -> Callable[[], int]:
    """A clock of epoch µs that never jumps: starts at the wall clock, continues monotonically."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    monotonic_ns = time.monotonic_ns
    return lambda: (monotonic_ns() + offset_ns) // 1_000


class _Load:
    """A running load. Events go out in the order of the ledger; `_sent` of them are sent."""

    def __init__(
        self,
        config: LoadConfig,
        producer: Producer,
        ledger: Ledger,
        clock: Callable[[], int],
        on_status: Callable[[Status], None],
    ) -> None:
        self._config, self._producer, self._ledger = config, producer, ledger
        self._clock, self._on_status = clock, on_status
        limit = number_setting(config, "queue.buffering.max.messages")
        self._window = min(limit, FLAT_OUT_WINDOW) if config.rate == "max" else limit
        workload = WORKLOADS[config.workload]
        # A late event is due with the event before it.
        late = workload.late_every is not None
        self._due_us = np.maximum.accumulate(ledger.scheduled_us) if late else ledger.scheduled_us
        self._encode = _encoder(config)
        self._partitions = partition_count(producer, config) if config.skew else 0
        self._order = Order(self._due_us, ledger.acked_us, workload.most_ahead_us)
        self._sent = self._full_us = 0
        self._answers = _Answers(ledger, clock)
        self._repair = Repair(producer, config.bootstrap_servers)
        self._on_delivery = self._answers.callback()
        self._error: str | None = None
        self._next_status_us = 0
        # (time, sent) of the last second's statuses, oldest first
        self._recent: deque[tuple[int, int]] = deque(maxlen=1_000_000 // STATUS_EVERY_US)

    def send(self, stopped: Callable[[], bool]) -> None:
        """Sends every event at its time.

        Ends when the plan ends, `stopped` is true, Kafka refuses, or the file has changed.
        """
        ledger, clock, poll = self._ledger, self._clock, self._poll
        first, step = 0, 1
        while first < len(ledger):
            rows = slice(first, min(first + step, len(ledger)))
            due_us = self._due_us[rows].tolist()
            try:
                keys, values = self._encode(ledger.session[rows], ledger.seq[rows], ledger.scheduled_us[rows])
            except ConfigError as error:
                self._error = str(error)
                return
            places = self._places(ledger.session[rows])
            done = 0
            while done < len(keys):
                now_us = clock()
                self._report(now_us)
                if stopped() or self._error:
                    return
                newest_us = min(now_us, self._order.newest_us(self._sent))
                due = bisect_right(due_us, newest_us, done, min(len(keys), done + SLICE)) - done
                room = self._window - self._unanswered
                if due and room > 0:
                    end = done + min(due, room)
                    done += self._hand_over(first + done, keys[done:end], values[done:end], places[done:end])
                    poll(0)
                elif due:
                    self._wait_for_room()
                else:
                    until_us = min(due_us[done], self._next_status_us)
                    poll(max(TICK_S, (until_us - clock()) / 1e6))
            first, step = rows.stop, next_step(values)

    def drain(self, timeout_s: float, abandoned: Callable[[], bool]) -> None:
        """Waits until every sent event has its answer, for at most `timeout_s`."""
        deadline_us = self._clock() + int(timeout_s * 1e6)
        while self._unanswered:
            now_us = self._clock()
            if now_us > deadline_us or abandoned():
                break
            self._report(now_us)
            self._poll(0.05)
        self._report(self._clock(), at_once=True)

    def summary(self) -> Summary:
        """The result of the load; call it after `drain`."""
        ledger, acknowledged, failed, sent = self._ledger, self._answers.acknowledged, self._answers.failed, self._sent
        started_us = ledger.plan.started_us
        last_ack_us = int(ledger.acked_us[:sent].max(initial=0))
        last_us = last_ack_us or int(ledger.sent_us[:sent].max(initial=started_us))
        duration_s = max(last_us - started_us, 0) / 1e6
        return Summary(
            planned=len(ledger),
            sent=sent,
            acknowledged=acknowledged,
            failed=failed,
            unknown=sent - acknowledged - failed,
            duration_s=round(duration_s, 6),
            events_per_s=round(acknowledged / duration_s, 3) if duration_s else 0.0,
            lateness_ms=lateness(self._due_us[:sent], ledger.sent_us[:sent]),
            sent_share=sent / len(ledger),
            error=self._error,
            queue_full_s=self._full_us / 1e6,
        )

    @property
    def _unanswered(self) -> int:
        return self._sent - self._answers.acknowledged - self._answers.failed

    def _poll(self, timeout_s: float) -> None:
        """Takes Kafka's answers; waits up to `timeout_s` for the first one."""
        self._producer.poll(timeout_s)
        self._answers.enter()

    def _wait_for_room(self) -> None:
        """Events are due and the queue is full: an answer makes room."""
        began_us = self._clock()
        self._poll(TICK_S)
        self._full_us += self._clock() - began_us

    def _places(self, session: npt.NDArray[np.uint32]) -> list[int]:
        """Returns the partition of each event; BY_KEY if its key decides."""
        if not self._partitions:
            return [BY_KEY] * len(session)
        places: list[int] = partitions(self._config.seed, session, self._partitions, self._config.skew).tolist()
        return places

    def _hand_over(
        self,
        first: int,
        keys: Sequence[str | bytes | None],
        values: Sequence[str | bytes],
        places: Sequence[int],
    ) -> int:
        """Gives these events (ledger rows from `first` on) to the client; returns how many it took."""
        end = first + len(keys)
        rows = iter(range(first, end))
        self._ledger.sent_us[first:end] = self._clock()
        reports = map(partial, repeat(self._on_delivery), rows)
        calls = map(self._producer.produce, repeat(self._config.topic), values, keys, places, reports)
        taken = len(keys)
        try:
            deque(calls, maxlen=0)  # a loop that runs in C: a third more events/s than a `for` statement
        except (BufferError, KafkaException) as error:
            taken = next(rows, end) - 1 - first  # the refused event is the last one drawn from `rows`
            self._ledger.sent_us[first + taken : end] = 0
            if isinstance(error, KafkaException):
                self._error = f"Kafka's client refused an event: {reason(error)}"
            else:
                self._wait_for_room()
        self._sent += taken
        return taken

    def _report(self, now_us: int, at_once: bool = False) -> None:
        """Reports the status of the load if a report is due, or `at_once`."""
        if now_us < self._next_status_us and not at_once:
            return
        self._next_status_us = now_us + STATUS_EVERY_US
        if self._unanswered:
            self._repair.look((self._answers.acknowledged, self._answers.failed))
        ledger, sent = self._ledger, self._sent
        then_us, sent_then = self._recent[0] if self._recent else (now_us, sent)
        self._recent.append((now_us, sent))
        late_ms = lateness(self._due_us[sent_then:sent], ledger.sent_us[sent_then:sent]).p99
        if sent < len(ledger):
            late_ms = max(late_ms, (now_us - int(self._due_us[sent])) / 1e3)
        planned = int(np.searchsorted(self._due_us, now_us, side="right"))
        rate = (sent - sent_then) / ((now_us - then_us) / 1e6) if now_us > then_us else 0.0
        acknowledged, failed = self._answers.acknowledged, self._answers.failed
        self._on_status(Status(now_us, planned, sent, acknowledged, failed, round(rate, 1), round(late_ms, 3)))


class _Answers:
    """Collects Kafka's answers during a poll, and enters them into the ledger together after it.

    Each event has a callback. Two appends to a list take half the time of four writes to the ledger.

    Attributes:
        acknowledged, failed: numbers of events.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], int]) -> None:
        self._ledger, self._clock = ledger, clock
        self._rows: list[int] = []
        self._messages: list[Message] = []
        self.acknowledged = self.failed = 0

    def callback(self) -> Callable[[int, KafkaError | None, Message], None]:
        """The delivery callback of an event, whose row in the ledger is its first argument."""
        add_row, add_message = self._rows.append, self._messages.append

        def on_delivery(row: int, error: KafkaError | None, message: Message) -> None:
            if error is None:
                add_row(row)
                add_message(message)
            else:
                self._ledger.acked_us[row] = -abs(error.code())
                self.failed += 1

        return on_delivery

    def enter(self) -> None:
        """Enters the acknowledgements of a poll that has just ended."""
        rows, messages, ledger = self._rows, self._messages, self._ledger
        if not rows:
            return
        count, at = len(rows), np.array(rows)
        ledger.partition[at] = np.fromiter(map(Message.partition, messages), np.int32, count)
        ledger.offset[at] = _offsets(messages)
        ledger.acked_us[at] = self._clock()  # last, so an acknowledged row always has its partition and offset
        self.acknowledged += count
        rows.clear()
        messages.clear()


def _offsets(messages: Sequence[Message]) -> npt.NDArray[np.int64]:
    """The offsets of acknowledged events; -1 where the acknowledgement has none.

    A broker that gets an event twice answers DUPLICATE_SEQUENCE_NUMBER to the second one, and may have forgotten its
    offset. librdkafka then reports success without an offset.
    """
    try:
        return np.fromiter(map(Message.offset, messages), np.int64, len(messages))
    except TypeError:  # rare, and a check of each offset would slow every load
        found = [message.offset() for message in messages]
        return np.array([UNKNOWN_OFFSET if offset is None else offset for offset in found], np.int64)


def _question(stop: Stop | None) -> Callable[[], bool]:
    if stop is None:
        return lambda: False
    return stop.is_set if isinstance(stop, Event) else stop


@contextmanager
def _collector_off() -> Iterator[None]:
    """Disables the cycle collector: it visits every event in flight, which takes tens of ms."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
