"""The metrics of a job: which there are, and what they count.

A silent server never delays a scrape.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from oncebench.delivery.contract import Written
from oncebench.delivery.errors import DeliveryFailed, RefusedStart
from oncebench.delivery.transactions.left import OPEN, Left
from oncebench.jobs import KafkaSink, deliver, metrics
from oncebench.jobs.metrics import JobMetrics
from oncebench.jobs.watch import WATCHES, Watch, watch_of
from tests import ROOT

OF = {"sink": "kafka", "sink_id": "a"}
# Alerts of other people name these: a change here breaks them.
METRICS = {
    "oncebench_batches_total": ("counter", {"sink", "sink_id", "outcome"}),
    "oncebench_rows_total": ("counter", {"sink", "sink_id"}),
    "oncebench_rejected_rows_total": ("counter", {"sink", "sink_id", "reason"}),
    "oncebench_dropped_partitions_total": ("counter", {"sink", "sink_id"}),
    "oncebench_failures_total": ("counter", {"sink", "sink_id", "error"}),
    "oncebench_newest_commit_timestamp_seconds": ("gauge", {"sink", "sink_id"}),
    "oncebench_open_batch_age_seconds": ("gauge", {"sink", "sink_id"}),
    "oncebench_open_transactions": ("gauge", {"sink", "sink_id"}),
    "oncebench_oldest_open_transaction_age_seconds": ("gauge", {"sink", "sink_id"}),
}
Scraped = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture
def watch() -> Iterator[Watch]:
    before = dict(WATCHES)
    WATCHES.clear()
    yield watch_of("kafka", "a")
    WATCHES.clear()
    WATCHES.update(before)


@pytest.fixture
def scrape() -> Callable[[], Scraped]:
    registry = CollectorRegistry()
    registry.register(JobMetrics())

    def scraped() -> Scraped:
        text = generate_latest(registry).decode()
        found: Scraped = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    return scraped


def failures(found: Scraped) -> dict[str, float]:
    """The failures so far, by the label that names their class."""
    return {labels["error"]: value for labels, value in found["oncebench_failures_total"] if value}


def batch(rows: Sequence[int], quarantined: Mapping[str, int] | None = None, **more: Any) -> Any:
    results = [Written(p, count, 0, quarantined=quarantined or {}) for p, count in enumerate(rows)]
    return SimpleNamespace(**{"results": results, "drained": False, "dropped": [], **more})


def all_of_it(watch: Watch) -> None:
    watch.open_transactions = lambda: Listing([])  # type: ignore[assignment,return-value]
    with watch.batch():
        watch.note_batch(batch([1], {"bad": 1}))
    with pytest.raises(RefusedStart), watch.counted_failures():
        raise RefusedStart("no")


class Listing:
    """A sink's list of transactions."""

    def __init__(self, found: Sequence[Left], error: Exception | None = None) -> None:
        self.found, self.error, self.closed = found, error, False

    def look(self) -> list[Left]:
        if self.error is not None:
            raise self.error
        return list(self.found)

    def close(self) -> None:
        self.closed = True


def test_these_metrics_exist_with_these_labels_and_types(watch: Watch, scrape: Callable[[], Scraped]) -> None:
    all_of_it(watch)
    found = scrape()
    assert {name: {frozenset(labels) for labels, _ in samples} for name, samples in found.items()} == {
        name: {frozenset(labels)} for name, (_, labels) in METRICS.items()
    }
    kinds = {f"{each.name}_total" if each.type == "counter" else each.name: each for each in JobMetrics().collect()}
    assert {name: each.type for name, each in kinds.items()} == {name: kind for name, (kind, _) in METRICS.items()}
    assert all(len(each.documentation) > 20 for each in kinds.values())


def test_the_page_names_every_metric() -> None:
    page = (ROOT / "docs" / "your_own_job.md").read_text()
    assert [name for name in METRICS if f"`{name}`" not in page] == []


def test_the_alerts_of_the_page_name_series_that_exist() -> None:
    page = (ROOT / "docs" / "your_own_job.md").read_text()
    (alerts,) = (block for block in page.split("```") if "increase(" in block)
    text = generate_latest(metrics.REGISTRY).decode()
    known = {*METRICS, *(family.name for family in text_string_to_metric_families(text)), "up"}
    named = [re.sub(r"^\w+\(", "", line) for line in alerts.strip().splitlines()]
    names = [re.match(r"\w+", each) for each in named]
    assert len(names) > 4
    assert [each for each in names if each is None or each[0] not in known] == []


def test_batches_rows_and_rejected_rows_are_counted(watch: Watch, scrape: Callable[[], Scraped]) -> None:
    watch.note_batch(batch([3, 4], {"late": 2}))
    watch.note_batch(batch([5, 0], dropped=[1]))
    watch.note_batch(batch([9, 9], drained=True))
    found = scrape()
    assert found["oncebench_batches_total"] == [({**OF, "outcome": "written"}, 2), ({**OF, "outcome": "drained"}, 1)]
    assert found["oncebench_rows_total"] == [(OF, 12)]
    assert found["oncebench_rejected_rows_total"] == [({**OF, "reason": "late"}, 4)]
    assert found["oncebench_dropped_partitions_total"] == [(OF, 1)]


def test_a_batch_that_fails_stays_open_until_one_is_delivered(
    watch: Watch, scrape: Callable[[], Scraped], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "time", lambda: now)
    assert scrape()["oncebench_open_batch_age_seconds"] == [(OF, 0)]
    with pytest.raises(DeliveryFailed), watch.batch():
        raise DeliveryFailed("not acknowledged")
    now = 1030.0
    found = scrape()
    assert found["oncebench_open_batch_age_seconds"] == [(OF, 30)]
    assert failures(found) == {"DeliveryFailed": 1}
    assert "oncebench_newest_commit_timestamp_seconds" not in found, "nothing is committed yet"
    with watch.batch():
        now = 1045.0
    now = 1050.0
    found = scrape()
    assert found["oncebench_open_batch_age_seconds"] == [(OF, 0)]
    assert found["oncebench_newest_commit_timestamp_seconds"] == [(OF, 1045)]


def test_a_refused_start_is_counted(watch: Watch, scrape: Callable[[], Scraped]) -> None:
    sink = KafkaSink("out", bootstrap_servers="b:1", sink_id="a")
    with pytest.raises(RefusedStart, match="not a stream"):
        deliver(SimpleNamespace(isStreaming=False), sink, guarantee="exactly-once", checkpoint="c")  # type: ignore[arg-type]
    assert failures(scrape()) == {"RefusedStart": 1}


class OfASink(RefusedStart):
    """An error that a sink derives from one of the library."""


class OfAQuery(Exception):
    """An error of the query's own code."""


def test_every_failure_counts_in_a_series_that_began_at_zero(watch: Watch, scrape: Callable[[], Scraped]) -> None:
    before = {labels["error"]: value for labels, value in scrape()["oncebench_failures_total"]}
    assert {"RefusedStart", "DeliveryFailed", "NoKafka"} < set(before)
    assert set(before.values()) == {0}
    for error in (OfASink("no"), OfAQuery("none"), DeliveryFailed("lost")):
        with pytest.raises(type(error)), watch.counted_failures():
            raise error
    after = failures(scrape())
    assert after == {"RefusedStart": 1, "DeliveryFailed": 1, "other": 1}
    assert set(after) < set(before)


def test_the_oldest_open_transaction_is_dated(
    watch: Watch, scrape: Callable[[], Scraped], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    found = [Left("a-1", OPEN, began_at=940.0), Left("a-2", OPEN, began_at=900.0), Left("a-3", OPEN)]
    watch.open_transactions = lambda: Listing(found)  # type: ignore[assignment,return-value]
    scraped = scrape()
    assert scraped["oncebench_open_transactions"] == [(OF, 3)]
    assert scraped["oncebench_oldest_open_transaction_age_seconds"] == [(OF, 100)]
    watch.open_transactions = lambda: Listing([])  # type: ignore[assignment,return-value]
    scraped = scrape()
    assert scraped["oncebench_open_transactions"] == [(OF, 0)]
    assert scraped["oncebench_oldest_open_transaction_age_seconds"] == [(OF, 0)]


def test_a_sink_whose_commits_are_one_step_has_no_such_series(watch: Watch, scrape: Callable[[], Scraped]) -> None:
    assert watch.open_transactions is None
    assert not {"oncebench_open_transactions", "oncebench_oldest_open_transaction_age_seconds"} & set(scrape())


def test_a_sink_that_fails_or_is_silent_costs_its_series_only(
    watch: Watch, scrape: Callable[[], Scraped], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "LOOK_LIMIT_S", 0.2)
    broken = Listing([], error=OSError("no route"))
    watch.open_transactions = lambda: broken  # type: ignore[assignment,return-value]
    found = scrape()
    assert "oncebench_open_transactions" not in found
    assert found["oncebench_rows_total"] == [(OF, 0)]
    assert broken.closed, "the next scrape opens another connection"
    silence = threading.Event()
    silent = Listing([Left("a-1", OPEN)])
    monkeypatch.setattr(silent, "look", lambda: silence.wait(30) and [Left("a-1", OPEN)])
    watch.open_transactions = lambda: silent  # type: ignore[assignment,return-value]
    before = time.monotonic()
    for _ in range(2):  # the second one does not ask again
        assert "oncebench_open_transactions" not in scrape()
    assert time.monotonic() - before < 5
    silence.set()
    until = time.monotonic() + 30
    while "oncebench_open_transactions" not in (found := scrape()):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert found["oncebench_open_transactions"] == [(OF, 1)]


def test_a_scrape_waits_for_all_silent_sinks_together(
    watch: Watch, scrape: Callable[[], Scraped], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "LOOK_LIMIT_S", 1.0)
    silence = threading.Event()
    silent = Listing([])
    monkeypatch.setattr(silent, "look", lambda: silence.wait(30) and [])
    for sink_id in range(20):
        watch_of("kafka", f"silent-{sink_id}").open_transactions = lambda: silent  # type: ignore[assignment,return-value]
    watch_of("kafka", "f").open_transactions = lambda: Listing([])  # type: ignore[assignment,return-value]
    before = time.monotonic()
    found = scrape()
    assert 1.0 <= time.monotonic() - before < 15.0, "one after the other, they take 20 s"
    assert found["oncebench_open_transactions"] == [({"sink": "kafka", "sink_id": "f"}, 0)], "an answer is not lost"
    assert len(found["oncebench_rows_total"]) == 22, "and that of the fixture"
    silence.set()


def test_exporting_twice_is_exporting_once() -> None:
    metrics.export_metrics()
    metrics.export_metrics()
    metrics.REGISTRY.unregister(metrics._exported)
