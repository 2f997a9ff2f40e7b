"""A windowed job of one's own gets its last window without more input.

This holds also if the batch without data is killed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncebench.lab.lab import Lab
from oncebench.processes.child import tail
from oncebench.record.json_lines import read_lines
from tests.integration.pipeline.own_job import Own
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

COLUMNS = """SCHEMA = StructType(
    [StructField("shop", StringType()), StructField("from_us", LongType()), StructField("n", LongType())]
)
ROW = tuple(SCHEMA.names)
KEY = "shop"
ID = ("shop", "from_us")
"""
QUERY = '''def query(spark: SparkSession, config: PipelineConfig) -> DataFrame:
    """Sales by shop and minute."""
    sale = f.from_json(f.col("value").cast("string"), "shop string, at timestamp").alias("sale")
    sales = records(spark, config).select(sale).select("sale.*").withWatermark("at", "5 seconds")
    counted = sales.groupBy(f.window("at", "1 minute"), "shop").count()
    return counted.select("shop", f.unix_micros("window.start").alias("from_us"), f.col("count").alias("n"))
'''
MINUTE_US = 60_000_000
SALES = [(shop, minute, number) for shop in "ab" for minute in range(3) for number in range(4)]
WAIT_S = 250.0  # a start of Spark takes 5 to 10 s on idle cores, and minutes next to other tests
KILLS = ("before-prepare", "after-prepare", "after-decision", "after-commit")


def windowed(folder: Path) -> None:
    """Replaces the columns and the query of the page's job."""
    rows, query = folder / "pipeline" / "rows.py", folder / "pipeline" / "query.py"
    text = rows.read_text()
    first, last = text.index("SCHEMA = "), text.index("RECORD_SCHEMA")
    rows.write_text(text[:first] + COLUMNS + "\n" + text[last:])
    text = query.read_text()
    query.write_text(text[: text.index("def query")] + QUERY)


def send(own: Own) -> None:
    """Sends three minutes of sales, and one sale that closes these minutes."""
    producer = Producer({"bootstrap.servers": own.servers})
    for shop, minute, number in [*SALES, ("a", 10, 0)]:
        value = json.dumps({"shop": shop, "at": f"2026-11-25T08:{minute:02}:{number:02}Z"}).encode()
        producer.produce(own.topics["orders"], key=shop.encode(), value=value, partition=0)
    assert producer.flush(30) == 0


def windows(own: Own) -> Counter[tuple[str, int, int]]:
    """How often each row is visible; the minute counts from the first."""
    rows = [json.loads(value) for value in own.read("checked")]
    start = min((row["from_us"] for row in rows), default=0)
    return Counter((row["shop"], (row["from_us"] - start) // MINUTE_US, row["n"]) for row in rows)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("variant", "kills"), [("two-phase", KILLS), ("idempotent", (KILLS[1], KILLS[3]))])
def test_windows_that_the_watermark_has_closed_are_written_once_without_more_input(
    lab: Lab, tmp_path: Path, variant: str, kills: tuple[str, ...]
) -> None:
    faults = [f"{point}@batch=1" for point in kills]
    own = Own(lab, tmp_path, variant=variant, partitions=2, faults=faults)
    windowed(tmp_path)
    send(own)
    wanted = Counter({(shop, minute, 4): 1 for shop in "ab" for minute in range(3)})
    for attempt in range(len(kills)):
        with own.start(attempt) as job:
            assert job.wait(WAIT_S), f"the kill did not come:\n{tail(job.log)}"
        assert len(read_lines(tmp_path / "state" / "record" / "hits.jsonl").items) == attempt + 1
    with own.start(len(kills)) as job:
        wait_for("the windows", lambda: sum(windows(own).values()) >= sum(wanted.values()), [job])
        committed = tmp_path / "state" / "checkpoint" / "commits" / "1"
        wait_for("the batch to be done", committed.exists, [job])
        job.stop_gently(WAIT_S)
        assert job.returncode == 0, tail(job.log)
    assert windows(own) == wanted
    lines = read_lines(tmp_path / "state" / "record" / "progress.jsonl").items
    (done,) = [line for line in lines if line["kind"] == "sink" and line["batch"] == 1]
    assert done["batch"] == 1
