"""Checks that executors write to the driver's checkpoint folder.

Spark's state stores write into the checkpoint from the executors. If a machine has another folder under the path of the
checkpoint, its part of the state goes there, and a restart on another machine would not find it.

Promise: each task reads a file that the driver has written, and writes one that the driver reads. A machine that gets
no task now is not checked. Nothing is left in the folder.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from oncebench.delivery.errors import RefusedStart


@dataclass(frozen=True)
class _Look:
    """Runs in a task: returns its machine, and what is wrong with the folder there ("": nothing)."""

    token: Path
    text: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        own = self.token.with_name(f"{self.token.name}.{uuid.uuid4().hex}")
        wrong, made = "", ""
        try:
            if self.token.read_text("ascii") != self.text:
                wrong = "another file is there"
            else:
                own.write_text(self.text, "ascii")
                made = str(own)
        except OSError as error:
            wrong = error.strerror or type(error).__name__
        yield pa.RecordBatch.from_pylist([{"host": socket.gethostname(), "wrong": wrong, "made": made}])


def refuse_other_folder(spark: SparkSession, folder: Path, tasks: int) -> None:
    """Raises RefusedStart if an executor does not have the driver's folder under its path.

    Args:
        tasks: how many tasks look, so that every executor of a small cluster gets one.
    """
    token, text = folder.absolute() / f".shared-{uuid.uuid4().hex}", uuid.uuid4().hex
    token.write_text(text, "ascii")
    try:
        looks = spark.range(0, tasks, 1, tasks).mapInArrow(
            _Look(token, text).__call__, "host string, wrong string, made string"
        )
        for host, wrong, made in (tuple(row) for row in looks.collect()):
            if wrong or not Path(made).exists():
                raise RefusedStart(
                    f"the executors on {host} do not share the folder {folder} with this driver "
                    f"({wrong or 'what they write does not arrive here'}). Spark's state stores write there. Give a "
                    "checkpoint in a file system that every machine of the cluster mounts under the same path."
                )
    finally:
        for left in folder.glob(f"{token.name}*"):
            left.unlink(missing_ok=True)
