"""Loads on a real broker whose partitions follow a user's keys or a declared skew."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from loadgen.config import Replayed
from loadgen.ledger import Ledger
from loadgen.producer import run_load
from loadgen.session import partitions
from tests.integration.loadgen.test_producer import Broker, config, read_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_each_record_of_a_file_is_once_in_the_topic_under_its_key(kafka: Broker, tmp_path: Path) -> None:
    names = ["anna", "béla", None, "李雷"]
    orders = [{"order": n} | ({"customer": names[n % 4]} if names[n % 4] else {}) for n in range(330)]
    texts = [json.dumps(order, ensure_ascii=False) for order in orders]
    (tmp_path / "orders.jsonl").write_text("\n\n".join(texts), encoding="utf-8")
    replayed = Replayed(tmp_path / "orders.jsonl", "customer", passes=2)
    load = config(kafka, tmp_path, "max", 7, workload="records", replayed=replayed)
    assert run_load(load).acknowledged == 660
    ledger, places, found = Ledger.open(load.ledger_dir), defaultdict(set), {}
    for partition, offset, key, value in read_topic(kafka, load.topic):
        event = json.loads(value)
        n = event["n"]
        found[event["id"]] = event["record"], None if key is None else key.decode()
        places[key].add(partition)
        assert (ledger.partition[n], ledger.offset[n], ledger.scheduled_us[n]) == (
            partition, offset, event["scheduled_at"],
        )  # fmt: skip
    lines = [(2 * n + 1, text, names[n % 4]) for n, text in enumerate(texts)]
    first = {f"{line}": (text, name) for line, text, name in lines}
    assert found == first | {f"{line}@2": (text, name) for line, text, name in lines}
    del places[None]
    assert all(len(where) == 1 for where in places.values()), "a key is in one partition"


def test_skewed_sessions_are_in_the_partitions_of_the_plan(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.fresh_topic("load", partitions=4)
    load = config(kafka, tmp_path, "max", 300, topic=topic, skew=1.5, seed=5)
    assert run_load(load).acknowledged == 30_000
    ledger = Ledger.open(load.ledger_dir)
    assert (ledger.partition == partitions(5, ledger.session, 4, 1.5)).all()
    counts = np.bincount(ledger.partition, minlength=4).tolist()
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 15_000, "the first partition has more than half"
