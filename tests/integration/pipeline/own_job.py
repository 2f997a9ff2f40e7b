"""The job of docs/pipeline_as_template.md, with topics of its own."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from oncebench.delivery.copies import headers
from oncebench.lab.lab import Lab
from oncebench.processes import child
from oncebench.processes.child import tail
from oncebench.sinks.kafka.reader import KafkaReader
from oncebench.sinks.registry import SINKS
from tests import ROOT
from tests.reading import committed_records, read_all

WAIT_S = 120.0  # a start of Spark takes 5 to 10 s, and many times that beside other tests
# Records that are no orders: the third costs nothing.
NONE = (b"no json", b"{}", b'{"order_id":"o","cents":0,"placed_at":"2026-11-25T08:00:00Z"}', None)


def blocks(language: str) -> list[str]:
    page = (ROOT / "docs" / "pipeline_as_template.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def copied(folder: Path, **settings: Any) -> Path:
    """The job of the page, with these settings in place of its own.

    From the project, the job finds the library alone.
    """
    (folder / "library").mkdir()
    (folder / "library" / "oncebench").symlink_to(ROOT / "oncebench")
    shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs" / "pipeline_as_template.md").read_text()
    for pattern in " ".join(re.findall(r"^rm (.+)$", page, re.MULTILINE)).split():
        for path in folder.glob(pattern):
            path.unlink()
    columns, query = blocks("python")
    rows, own = folder / "pipeline" / "rows.py", folder / "pipeline" / "query.py"
    imported, columns = columns.split("\n\n", 1)
    text = re.sub(r"^SCHEMA = .*?^ID = [^\n]*\n", lambda _: columns, rows.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert columns in text
    first = text.index("from pyspark.sql import")
    rows.write_text(f"{text[:first]}{imported}\n{text[first:]}")
    (kept,) = re.findall(r"^def records.*?(?=^def query)", own.read_text(), re.DOTALL | re.MULTILINE)
    head, body = query.split("def query", 1)
    own.write_text(f"{head}{kept}def query{body}")
    path = folder / "job.json"
    (of_the_page,) = blocks("json")
    path.write_text(json.dumps(json.loads(of_the_page) | settings))
    return path


def order(number: int) -> dict[str, Any]:
    """An order; every other one has no note."""
    note = None if number % 2 else "in a hurry"
    placed_at = f"2026-11-25T08:00:00.{number:06}Z"
    return {
        "order_id": f"o-{number}",
        "cents": 100 + number,
        "placed_at": placed_at,
        "items": ["a", None],
        "note": note,
    }


class Own:
    """Topics and a job of the page's kind between them."""

    def __init__(self, lab: Lab, folder: Path, **settings: Any) -> None:
        self.lab, self.folder = lab, folder
        self.servers = lab.kafka.bootstrap_servers
        self.topics = {name: lab.kafka.fresh_topic(name, number)
                       for name, number in (("orders", 4), ("checked", 2), ("bad", 1))}  # fmt: skip
        spark: Mapping[str, Any] = lab.spark([SINKS["kafka"]])
        copied(
            folder, bootstrap_servers=self.servers, input_topic=self.topics["orders"],
            output={"output": self.topics["checked"]}, quarantine_topic=self.topics["bad"],
            sink_id=self.topics["checked"], driver_jars=spark["driver_jars"],
            jvm_options=spark["jvm_options"], spark={}, **settings,
        )  # fmt: skip
        self._producer = Producer({"bootstrap.servers": self.servers})

    def start(self, number: int) -> child.Child:
        command = [sys.executable, "-m", "pipeline", "job.json"]
        log = self.folder / f"job-{number}.log"
        environment = {**self.lab.environment(), "PYTHONPATH": str(self.folder / "library")}
        return child.start("the job", command, log, cwd=self.folder, env=environment)

    def send(self, numbers: range) -> None:
        for number in numbers:
            self._producer.produce(self.topics["orders"], key=b"%d" % number, value=json.dumps(order(number)).encode())
        for value in NONE:
            self._producer.produce(self.topics["orders"], key=b"none", value=value)
        assert self._producer.flush(30) == 0

    def read(self, name: str) -> list[bytes]:
        return [value or b"" for value in read_all(KafkaReader(self.servers, self.topics[name])).value]

    def set_aside(self) -> set[tuple[bytes, bytes]]:
        """The positions in the input of the records that were copied, perhaps more than once."""
        copies = [dict(record.headers() or ()) for record in committed_records(self.servers, self.topics["bad"])]
        return {(copy[headers.SOURCE_PARTITION], copy[headers.SOURCE_OFFSET]) for copy in copies}

    def visible(self) -> Counter[str]:
        return Counter(str(json.loads(value)["order_id"]) for value in self.read("checked"))


def ended(own: Own) -> tuple[int | None, str]:
    """The exit code of a job that ends by itself, and what it said."""
    with own.start(0) as job:
        assert job.wait(WAIT_S), f"it goes on:\n{tail(job.log)}"
    return job.returncode, job.log.read_text()
