"""Measures what an audit costs: processor time, time and memory per row of a record.

    python -m tools.audit_cost [EVENTS [FOLDER [RECORD_BYTES]]]

Takes 20 seconds by default, and five minutes with 10,000,000 events.

Writes the record of a faultless run with EVENTS events (default: 833,400, a million rows) in the format of a run
folder. Then it loads and audits the record with each auditor, and makes a report with both. Each of these steps has a
fresh process. With FOLDER the record stays in that folder, and a second call with the same numbers only audits it.
10,000,000 events take 2 GB of disk. With RECORD_BYTES the events are padded to this size.

A row is a record of the input topic or a row of the final read: 100 events and 20 rows per session. The observer's rows
and the ledger are part of the record and of the cost, but do not count as rows.

The memory is the peak resident set of the process (`VmHWM`), with the interpreter, its libraries and the pages of
mapped files. The tool does not use `ru_maxrss`, because it can be the peak of the parent process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadgen.config import LoadConfig
from loadgen.ledger import Ledger, read_plan
from loadgen.plan import plan_load
from loadgen.session import EVENTS_PER_SESSION, MAX_RECORD_BYTES, encode, values
from oncebench.errors import ExitCode, UserError
from oncebench.program import run_program
from oncebench.record import FINAL, INPUT, LOG, OBSERVED, QUARANTINE, WORK_FOLDER_FILE
from oncebench.record.streams import StreamWriter
from oncebench.scenario.cell import Cell

EVENTS = 833_400
PARTITIONS = 2
STARTED_US = 1_790_000_000_000_000
READ = 5_000  # records of one batch of a stored stream, as the Kafka reader takes them
RATE = 10_000.0
BATCH = 10_000  # events of a micro-batch: a second of the load
ROWS = 20
EVENTS_PER_ROW = EVENTS_PER_SESSION // ROWS
LATENCY_US = 500_000
Ints = npt.NDArray[np.int64]

# Each runs in a fresh process and loads only what it needs. It leaves the number of findings in `found`.
AUDITORS = {
    "first auditor": """
from oncebench.audit.python.audit import audit
from oncebench.record import Record
found = sum(audit(Record.load(folder)).counts().values())
""",
    "second auditor": """
from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.sql.count import sql_audit
counted = sql_audit(folder)
if counted.trouble:
    sys.exit(counted.trouble)
found = sum(counted.counts.get(code, 0) for code in CATALOGUE)
""",
    "report, with both": """
from oncebench.record import Record
from oncebench.report.report import make_report
from oncebench.scenario.cell import Cell
report = make_report(Record.load(folder), Cell("kafka", "exactly-once", "two-phase"), {}, {"run": "r"})
if not report["auditors"]["agree"]:
    sys.exit(str(report["auditors"]))
found = sum(report["anomalies"].values())
""",
}
MEASURED = """
import json, resource, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
began = time.perf_counter()
{auditor}
took_s = time.perf_counter() - began
use = resource.getrusage(resource.RUSAGE_SELF)
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
print(json.dumps([found, took_s, use.ru_utime + use.ru_stime, peak]))
"""


def write_record(folder: Path, sessions: int, record_bytes: int = 0) -> None:
    """Writes the record of a run that delivered every row exactly once.

    The events have at least `record_bytes` bytes.
    """
    config = LoadConfig("localhost:9092", "input", RATE, sessions, folder / "ledger", seed=1, record_bytes=record_bytes)
    ledger = plan_load(config, lambda: STARTED_US)
    partition, offset = positions(ledger.session)
    ledger.sent_us[:] = ledger.scheduled_us
    ledger.acked_us[:] = ledger.scheduled_us + 1_000
    ledger.partition[:], ledger.offset[:] = partition, offset
    ends = write_input(folder, ledger, partition, offset, record_bytes)
    write_output(folder, ledger)
    with StreamWriter(folder / "quarantine.arrow", QUARANTINE):
        pass
    lines = [{"kind": "batch", "t_us": STARTED_US, "batch": at, "start_offsets": ends[at], "end_offsets": ends[at + 1],
              "input_rows": BATCH, "state": [], "duration_ms": {"triggerExecution": 1000.0}}
             for at in range(len(ends) - 1)]  # fmt: skip
    (folder / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "timeline.jsonl").write_text('{"event": "drained", "t_us": 5}\n')
    (folder / "cell.json").write_text(
        json.dumps({"run": "r", "cell": Cell("kafka", "exactly-once", "two-phase").as_json()})
    )
    (folder / WORK_FOLDER_FILE).write_text("{}")


def positions(session: npt.NDArray[np.uint32]) -> tuple[Ints, Ints]:
    """Returns the partition and the offset of each record, sent in this order."""
    partition = session.astype(np.int64) % PARTITIONS
    offset = np.empty(len(session), np.int64)
    for number in range(PARTITIONS):
        offset[partition == number] = np.arange(int((partition == number).sum()))
    return partition, offset


def write_input(folder: Path, ledger: Ledger, partition: Ints, offset: Ints, record_bytes: int) -> list[dict[str, int]]:
    """Writes input.arrow; returns the ends of the micro-batches, first of an empty one."""
    ends = [{str(number): 0 for number in range(PARTITIONS)}]
    with StreamWriter(folder / "input.arrow", INPUT) as stream:
        for first in range(0, len(ledger), READ):
            rows = slice(first, first + READ)
            keys, texts = encode(1, ledger.session[rows], ledger.seq[rows], ledger.scheduled_us[rows], record_bytes)
            stream.append(
                {"partition": partition[rows], "offset": offset[rows], "timestamp_ms": ledger.sent_us[rows] // 1000,
                 "key": [as_bytes(key) for key in keys], "value": [as_bytes(text) for text in texts]}
            )  # fmt: skip
            if (first + READ) % BATCH == 0 or first + READ >= len(ledger):
                reached = slice(first + READ)
                ends.append({str(number): int((partition[reached] == number).sum()) for number in range(PARTITIONS)})
    return ends


def write_output(folder: Path, ledger: Ledger) -> None:
    """Writes final, observed and log.arrow and ends.json, in the order in which sessions end."""
    last = np.flatnonzero(ledger.seq == EVENTS_PER_SESSION - 1)
    session, ended_at = ledger.session[last], ledger.scheduled_us[last]
    partition, offset = positions(np.repeat(session, ROWS))
    with (
        StreamWriter(folder / "final.arrow", FINAL) as final,
        StreamWriter(folder / "observed.arrow", OBSERVED) as observed,
        StreamWriter(folder / "log.arrow", LOG) as log,
    ):
        for first in range(0, len(session), READ // ROWS):
            piece = slice(first, first + READ // ROWS)
            rows = slice(first * ROWS, first * ROWS + len(session[piece]) * ROWS)
            keys, texts = rendered(session[piece], ended_at[piece])
            seen_us = np.repeat(ended_at[piece], ROWS) + LATENCY_US
            columns: dict[str, Any] = {"partition": partition[rows], "offset": offset[rows], "key": keys,
                                       "value": texts}  # fmt: skip
            final.append({**columns, "timestamp_ms": seen_us // 1000})
            observed.append({**columns, "append_ms": seen_us // 1000, "seen_us": seen_us})
            stretches = [offset[rows][partition[rows] == number] for number in range(PARTITIONS)]
            log.append(vars_of(stretches))
    ends = {str(number): {"lso": int(count), "hw": int(count)}
            for number, count in enumerate(np.bincount(partition, minlength=PARTITIONS))}  # fmt: skip
    (folder / "ends.json").write_text(
        json.dumps({"output": ends, "input": {}, "leftovers": [], "final_complete": True, "log_complete": True})
    )


def vars_of(stretches: list[Ints]) -> dict[str, list[Any]]:
    """Returns the columns of log.arrow: one stretch per partition, without a transaction."""
    held = [(number, offsets) for number, offsets in enumerate(stretches) if len(offsets)]
    return {
        "partition": [number for number, _ in held],
        "offset": [int(offsets[0]) for _, offsets in held],
        "last_offset": [int(offsets[-1]) for _, offsets in held],
        "records": [len(offsets) for _, offsets in held],
        "producer": [1] * len(held),
        "generation": [1] * len(held),
        "transactional": [False] * len(held),
        "marker": [None] * len(held),
    }


def rendered(session: npt.NDArray[np.uint32], ended_at: Ints) -> tuple[list[bytes], list[bytes]]:
    """Returns keys and values of the rows of these sessions."""
    seq = np.tile(np.arange(EVENTS_PER_SESSION, dtype=np.uint8), len(session))
    drawn = values(1, np.repeat(session, EVENTS_PER_SESSION), seq).reshape(-1, ROWS, EVENTS_PER_ROW)
    keys, texts = [], []
    for number, ended, rows in zip(session.tolist(), ended_at.tolist(), drawn.tolist(), strict=True):
        key = f"1-{number:08d}"
        for j, five in enumerate(rows):
            text = "".join(f"{j * EVENTS_PER_ROW + at}={value};" for at, value in enumerate(five))
            keys.append(key.encode())
            texts.append(
                f'{{"session_key":"{key}","j":{j},"events":5,"total":{sum(five)},"checksum":{zlib.crc32(text.encode())}'
                f',"ended_at":{ended}}}'.encode()
            )
    return keys, texts


def as_bytes(text: str | bytes) -> bytes:
    """Returns the bytes of a record's key or value."""
    return text.encode() if isinstance(text, str) else text


def measured(auditor: str, folder: Path) -> tuple[int, float, float, int]:
    """Audits a record in a fresh process.

    Returns the findings, seconds, CPU seconds and bytes of memory.

    Raises:
        UserError: the audit failed.
    """
    command = [sys.executable, "-c", MEASURED.format(auditor=auditor), str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"the audit of {folder} failed with exit code {done.returncode}:\n{done.stderr.strip()}")
    found, took_s, cpu_s, peak = json.loads(done.stdout)
    return found, took_s, cpu_s, peak


def make_record(folder: Path, sessions: int, record_bytes: int) -> None:
    """Writes the record if it is not there; the folder has a whole record or none.

    Raises:
        UserError: the folder has other files, or another record (exit code 2).
    """
    if (folder / WORK_FOLDER_FILE).exists():
        plan = read_plan(folder / "ledger")
        if (plan.sessions, plan.record_bytes) != (sessions, record_bytes):
            raise UserError(
                f"{folder} holds a record of {plan.events:,} events with RECORD_BYTES {plan.record_bytes}. Give these "
                "numbers, or another folder",
                exit_code=ExitCode.USAGE,
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(
            f"{folder} has files that are no record. Give a folder that is empty or does not exist yet",
            exit_code=ExitCode.USAGE,
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
        write_record(made := Path(place) / "record", sessions, record_bytes)
        made.rename(folder)


def measure(folder: Path) -> None:
    """Measures both auditors, and prints a table."""
    rows = sum(pa.ipc.open_stream(pa.memory_map(str(folder / name))).read_all().num_rows
               for name in ("input.arrow", "final.arrow"))  # fmt: skip
    click.echo(f"{rows:,} rows\n\n| | s | s per 1 M rows | CPU s | peak MB | bytes per row | findings |")
    click.echo("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, auditor in AUDITORS.items():
        found, took_s, cpu_s, peak = measured(auditor, folder)
        click.echo(f"| {name} | {took_s:.2f} | {took_s * 1e6 / rows:.2f} | {cpu_s:.2f} | {peak / 1e6:,.0f} | "
                   f"{peak / rows:.0f} | {found} |")  # fmt: skip


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("events", type=click.IntRange(EVENTS_PER_SESSION), default=EVENTS)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
@click.argument("record_bytes", type=click.IntRange(0, MAX_RECORD_BYTES), default=0)
def main(events: int, folder: Path | None, record_bytes: int) -> None:
    """Measure what an audit of a record of EVENTS events costs.

    With FOLDER the record stays there. With RECORD_BYTES its events are padded to this size.
    """
    with tempfile.TemporaryDirectory(prefix="audit-cost-") as place:
        chosen = Path(place) / "record" if folder is None else folder.absolute()
        make_record(chosen, events // EVENTS_PER_SESSION, record_bytes)
        measure(chosen)


if __name__ == "__main__":
    run_program("tools.audit_cost", main)
