"""Iceberg sinks for `oncebench certify`: functions for foreachBatch, and two readers.

`exactly_once`, `at_least_once` and `at_most_once` are the sink of this package. A certificate calls a function per
batch, and `oncebench.jobs.deliver` takes a whole query. So `_started` starts the sink at the first batch of each
driver, as `deliver` does. The journal is in the folder of the run; `deliver` has it in the checkpoint.

`plain_append` and `checked_append` use pyiceberg alone, as people write it.

The readers are the programs in `readers/`, each in a process of its own. They do not use the sink's reader, and DuckDB
shares no code with pyiceberg.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from oncebench_iceberg.job import IcebergTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from oncebench.delivery.batch import deliverable
from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Sink, SinkSettings
from oncebench.delivery.journal import open_journal
from oncebench.delivery.protocols import choose, protocol_of
from oncebench.delivery.quarantine import Quarantine
from oncebench.jobs.batches import Batches
from oncebench.jobs.output import Target
from oncebench.jobs.start import identity_of
from oncebench.sinks.registry import SINKS

TABLE = "shop.rows"
TASKS = 2  # of a batch in a certificate's job
READERS = Path(__file__).parents[1] / "readers"
# Names the Python that has DuckDB 1.5.5 and its extension, which `readers/by_duckdb.py` installs.
VARIABLE = "DUCKDB_PYTHON"


def _warehouse() -> Path:
    return Path(os.environ["ONCEBENCH_OUTPUT"], "warehouse")


def exactly_once(df: DataFrame, batch_id: int) -> None:
    """Adds the files of a batch and its marker in one commit."""
    _deliver(df, batch_id, EXACTLY_ONCE)


def at_least_once(df: DataFrame, batch_id: int) -> None:
    """Adds the files of a batch in one commit; a replay adds them again."""
    _deliver(df, batch_id, AT_LEAST_ONCE)


def at_most_once(df: DataFrame, batch_id: int) -> None:
    """Claims a batch before it adds the files; a replay adds nothing."""
    _deliver(df, batch_id, AT_MOST_ONCE)


def _deliver(df: DataFrame, batch_id: int, guarantee: str) -> None:
    sink, deliver = _started(guarantee, df.schema)
    deliver(deliverable(df, sink), batch_id)


@cache
def _started(guarantee: str, schema: StructType) -> tuple[Sink, Callable[[DataFrame, int], None]]:
    described = IcebergTable(str(_warehouse()), TABLE, sink_id="certified")
    kind = SINKS[described.kind]
    support = choose(kind, guarantee, None)
    checkpoint = Path(os.environ["ONCEBENCH_OUTPUT"], "journal")
    checkpoint.mkdir(exist_ok=True)
    settings = SinkSettings(
        output={"output": described.output}, sink_id=described.sink_id, partitions=TASKS, checkpoint=checkpoint,
        variant=support.variant,
    )  # fmt: skip
    target = Target(kind, support, described.sink_id, described.output, checkpoint)
    journal = open_journal(checkpoint, identity_of(target, TASKS), settings.driver)
    sink = kind.open(settings)
    sink.check_schema(schema)
    sink.start(support, journal.generation, journal.newest_prepared())
    return sink, Batches(protocol_of(kind, support), sink, journal, TASKS, Quarantine("", "", {}))


def plain_append(df: DataFrame, _batch_id: int) -> None:
    """Appends the rows, and ignores the number of the batch."""
    rows = df.toArrow()
    with closing(_catalog()) as catalog:
        catalog.create_table_if_not_exists(TABLE, rows.schema).append(rows)


def checked_append(df: DataFrame, batch_id: int) -> None:
    """Appends a batch, and names it in a property of the table in the same commit.

    Appends no batch that the property names already.
    """
    with closing(_catalog()) as catalog:
        table = catalog.create_table_if_not_exists(TABLE, to_arrow_schema(df.schema))
        rows = df.toArrow()
        if batch_id > int(table.properties.get("newest_batch", "-1")):
            with table.transaction() as transaction:
                transaction.append(rows)
                transaction.set_properties(newest_batch=str(batch_id))


def _catalog() -> SqlCatalog:
    _warehouse().mkdir(exist_ok=True)
    path = _warehouse() / "catalog.sqlite"
    catalog = SqlCatalog("default", uri=f"sqlite:///{path}", warehouse=str(_warehouse()))
    catalog.create_namespace_if_not_exists(TABLE.partition(".")[0])
    return catalog


def read_by_pyiceberg() -> list[dict[str, Any]]:
    """Returns the rows of the newest snapshot, as pyiceberg reads them."""
    return _read_by("by_pyiceberg.py", sys.executable)


def read_by_duckdb() -> list[dict[str, Any]]:
    """Returns the rows of the newest snapshot, as DuckDB's extension reads them."""
    python = os.environ.get(VARIABLE)
    if not python:
        raise RuntimeError(f"{VARIABLE} is not set. Set it to the Python in which {READERS}/by_duckdb.py runs.")
    return _read_by("by_duckdb.py", python)


def _read_by(script: str, python: str) -> list[dict[str, Any]]:
    catalog = _warehouse() / "catalog.sqlite"
    if not catalog.exists():
        return []
    printed = subprocess.run([python, READERS / script, catalog, TABLE], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in printed.stdout.splitlines() if line]
