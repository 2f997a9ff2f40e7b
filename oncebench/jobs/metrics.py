"""Exports what the queries of this process deliver to Prometheus.

    from prometheus_client import start_http_server
    from oncebench.jobs.metrics import export_metrics

    export_metrics()
    start_http_server(9108, addr="127.0.0.1")

Promise: a scrape waits for all sinks together, never longer than LOOK_LIMIT_S, and never fails because of one. If a
sink does not list its transactions in time, the two series about them are missing in that scrape. Counters begin at 0
with each process. A scrape lists the open transactions of each sink that can leave some open, by a few requests to its
server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from threading import Lock, Thread
from typing import Any

from oncebench.delivery.transactions.left import Left, Transactions
from oncebench.jobs.watch import WATCHES, Watch
from oncebench.sinks.extras import how_to_install

try:
    from prometheus_client import REGISTRY
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"oncebench.jobs.metrics: {how_to_install(error)}", name=error.name) from None

# Prometheus ends a scrape after 10 s by default.
LOOK_LIMIT_S = 2.0
LABELS = ("sink", "sink_id")
_log = logging.getLogger(__name__)


class OpenTransactions:
    """The transactions of one sink_id, listed in a thread.

    The thread exists because a server that is away answers late.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._opened_by: Any = None
        self._sink: Transactions | None = None
        self._thread: Thread | None = None
        self._found: list[Left] | None = None

    def begin(self) -> None:
        """Begins a look, unless an earlier one still waits."""
        if self._thread is None or not self._thread.is_alive():
            self._found = None
            self._thread = Thread(target=self._look, name="oncebench-metrics", daemon=True)
            self._thread.start()

    def found(self, until: float) -> list[Left] | None:
        """Returns the open transactions of the look that has begun.

        Args:
            until: the time of `time.monotonic` at which the wait ends.

        Returns:
            None: the sink did not answer in time, or has failed.
        """
        assert self._thread is not None, "begin() comes first"
        self._thread.join(max(0.0, until - time.monotonic()))
        return None if self._thread.is_alive() else self._found

    def _look(self) -> None:
        opens = self._watch.open_transactions
        assert opens is not None, "the caller has looked"
        try:
            if self._sink is None or self._opened_by is not opens:  # another start may have another address
                self._close()
                self._sink, self._opened_by = opens(), opens
            self._found = self._sink.look()
        except Exception as error:
            _log.warning("sink_id %s: its open transactions are not listed: %s", self._watch.sink_id, error)
            self._close()

    def _close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()


class JobMetrics:
    """A collector for `prometheus_client`: reads the counts when it is scraped."""

    def __init__(self) -> None:
        self._transactions: dict[tuple[str, str], OpenTransactions] = {}
        self._one_scrape = Lock()

    def describe(self) -> list[Any]:
        """Returns nothing: registering must not ask a sink."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yields each metric with a sample per sink_id."""
        watches = list(WATCHES.values())
        yield from self._counts(watches)
        yield from self._times(watches)
        with self._one_scrape:
            yield from self._open(watches)

    def _counts(self, watches: list[Watch]) -> Iterator[Any]:
        batches = _counter(
            "oncebench_batches",
            "Batches that the sink holds. outcome=written: this process wrote the rows. outcome=drained: a replay that "
            "wrote nothing, because the rows were there (exactly-once) or may be lost (at-most-once).",
            "outcome",
        )
        rows = _counter("oncebench_rows", "Rows of the batches with outcome=written.")
        rejected = _counter("oncebench_rejected_rows", "Rows copied to the quarantine topic.", "reason")
        dropped = _counter(
            "oncebench_dropped_partitions", 'Partitions that on_lost="drop" left out: their rows are lost.'
        )
        failures = _counter(
            "oncebench_failures",
            "Refused starts and failed batches, by the class of the error; error=other: no class of this library.",
            "error",
        )
        for watch in watches:
            of = (watch.sink, watch.sink_id)
            batches.add_metric([*of, "written"], watch.written)
            batches.add_metric([*of, "drained"], watch.drained)
            rows.add_metric(of, watch.rows)
            dropped.add_metric(of, watch.dropped)
            for reason, count in list(watch.rejected.items()):
                rejected.add_metric([*of, reason], count)
            for error, count in list(watch.failures.items()):
                failures.add_metric([*of, error], count)
        yield from (batches, rows, rejected, dropped, failures)

    def _times(self, watches: list[Watch]) -> Iterator[Any]:
        newest = _gauge(
            "oncebench_newest_commit_timestamp_seconds",
            "Unix time at which this process delivered its newest batch; no sample before the first.",
        )
        open_batch = _gauge(
            "oncebench_open_batch_age_seconds", "Time since the batch in work began, failed attempts included; 0: none."
        )
        for watch in watches:
            committed, since = watch.newest_commit_at, watch.open_since
            if committed is not None:
                newest.add_metric((watch.sink, watch.sink_id), committed)
            open_batch.add_metric((watch.sink, watch.sink_id), 0.0 if since is None else time.time() - since)
        yield from (newest, open_batch)

    def _open(self, watches: list[Watch]) -> Iterator[Any]:
        number = _gauge(
            "oncebench_open_transactions",
            "Transactions of the sink_id that are not ended in the sink's server, of dead drivers too.",
        )
        oldest = _gauge(
            "oncebench_oldest_open_transaction_age_seconds",
            "Time since the oldest open transaction began; 0: none. In Kafka, committed readers wait for it.",
        )
        asked = []
        for watch in watches:
            if watch.open_transactions is not None:
                of = (watch.sink, watch.sink_id)
                transactions = self._transactions.setdefault(of, OpenTransactions(watch))
                transactions.begin()
                asked.append((of, transactions))
        until = time.monotonic() + LOOK_LIMIT_S
        for of, transactions in asked:
            found = transactions.found(until)
            if found is None:
                continue
            number.add_metric(of, len(found))
            began = min((left.began_at for left in found if left.began_at is not None), default=None)
            oldest.add_metric(of, 0.0 if began is None else max(0.0, time.time() - began))
        yield from (number, oldest)


def _counter(name: str, text: str, *labels: str) -> Any:
    return CounterMetricFamily(name, text, labels=(*LABELS, *labels))


def _gauge(name: str, text: str) -> Any:
    return GaugeMetricFamily(name, text, labels=LABELS)


_exported = JobMetrics()
_is_exported = False


def export_metrics() -> None:
    """Adds the metrics of all queries of this process to `prometheus_client.REGISTRY`.

    A second call does nothing. The job serves that registry itself, with `prometheus_client.start_http_server` or any
    other exporter.
    """
    global _is_exported  # noqa: PLW0603  one registry per process
    if not _is_exported:
        REGISTRY.register(_exported)
        _is_exported = True
