"""A recorded input gives the rows and rejections of the first operator, also in a replay.

`tests/data/recorded_input` holds 1,003 records of ten sessions, with every kind of bad event among them. The rows
and the rejections were recorded with commit 28dd13a, whose operator took one event at a time.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.pipelines import Fixture, position
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]

RECORDED = Path(__file__).parents[2] / "data" / "recorded_input"


def as_bytes(text: str | None) -> bytes | None:
    """The bytes of a recorded key or value.

    JSON has no bytes, and Latin-1 has a letter for each.
    """
    return None if text is None else text.encode("latin-1")


def send_recorded(fixture: Fixture) -> None:
    producer = Producer({"bootstrap.servers": fixture.lab.kafka.bootstrap_servers})
    for line in (RECORDED / "input.jsonl").read_text().splitlines():
        record = json.loads(line)
        value = b"x" * record["length"] if "length" in record else as_bytes(record["value"])
        producer.produce(fixture.input, key=as_bytes(record["key"]), value=value, partition=record["partition"])
    assert producer.flush(30) == 0


@pytest.mark.slow
def test_a_recorded_input_gives_the_recorded_rows_in_the_same_tasks_of_a_replay(fixture: Fixture) -> None:
    send_recorded(fixture)
    folder = fixture.folder / "files"
    config = fixture.config(
        "at-least-once", "acknowledged", "after-commit:kill@batch=0", sink="files-jsonl", output={"output": str(folder)}
    )
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        wait_for("the input to be read", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        pipeline.stop()
    assert pipeline.restarts == 1

    attempts: dict[tuple[int, int], list[list[str]]] = defaultdict(list)
    for path in folder.glob("part-*"):
        batch, partition = re.search(r"-(\d+)-(\d+)\.g\d+\.", path.name).groups()  # type: ignore[union-attr]
        attempts[int(batch), int(partition)].append(sorted(path.read_text().splitlines()))
    assert sorted(attempts) == [(0, 0), (0, 1)]
    assert all(first == second for first, second in attempts.values()), "the replay made other rows"

    rows = [json.loads(line) for first, _ in attempts.values() for line in first]
    recorded = [json.loads(line) for line in (RECORDED / "rows.jsonl").read_text().splitlines()]
    assert sorted(rows, key=lambda row: (row["session_key"], row["j"])) == recorded

    rejected = set()
    for headers in fixture.rows(fixture.quarantine).headers:
        named = dict(headers)
        place = int(named["oncebench.source_partition"]), int(named["oncebench.source_offset"])
        rejected.add((*place, named["oncebench.reason"].decode()))
    assert rejected == {tuple(each) for each in json.loads((RECORDED / "rejected.json").read_text())}
