"""A quarantine travels to a worker without what the driver has counted."""

from __future__ import annotations

import pickle

from oncebench.delivery.quarantine import Quarantine


def test_a_worker_counts_its_own_copies_only() -> None:
    here = Quarantine("bad", "in", {"bootstrap.servers": "localhost:1"})
    here._counts["not-json"] += 1
    there = pickle.loads(pickle.dumps(here))
    assert (there.topic, there.source_topic, there.client) == ("bad", "in", {"bootstrap.servers": "localhost:1"})
    assert there.flush() == {}
