"""A sink_id is a name, and no prefix of another one's transactional ids."""

from __future__ import annotations

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.kafka.names import Names, refuse_shared_ids, transactional_ids
from oncebench.sinks.sink_ids import refuse_unfit_sink_id


@pytest.mark.parametrize("sink_id", ["orders-1", "a.b", "a.txns", "atxn", "txn", "a_txn.b", "A.9"])
def test_a_name_is_taken(sink_id: str) -> None:
    refuse_unfit_sink_id(sink_id)
    refuse_shared_ids(sink_id)


@pytest.mark.parametrize("sink_id", ["", "a b", "a/b", "a\n", "ä"])
def test_a_text_that_is_no_name_is_refused(sink_id: str) -> None:
    with pytest.raises(RefusedStart, match=r"job\.json: sink_id is .* only letters, digits, `.`, `_` and `-`. Rename"):
        refuse_unfit_sink_id(sink_id, "job.json")


@pytest.mark.parametrize("sink_id", ["a.txn.b", "a.txn", "a.txn.g1", "a.b.txn.c"])
def test_a_sink_id_whose_transactions_another_one_would_end_is_refused(sink_id: str) -> None:
    other = sink_id.partition(".txn")[0]
    assert Names(sink_id, 1, "out").fresh_id().startswith(transactional_ids(other))
    with pytest.raises(RefusedStart, match=rf"must not have the part `.txn`: a job with sink_id '{other}' would end"):
        refuse_shared_ids(sink_id)
