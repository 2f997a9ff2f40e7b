"""The ledger: written values can be read, also after the writer was killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loadgen.errors import LedgerError
from loadgen.ledger import Ledger, Plan

DTYPES = {
    "session": "uint32",
    "seq": "uint8",
    "scheduled_us": "int64",
    "sent_us": "int64",
    "acked_us": "int64",
    "partition": "int32",
    "offset": "int64",
}


def make(directory: Path, sessions: int = 3) -> Ledger:
    """A ledger with a plan: session s, seq q at row 100 s + q."""
    ledger = Ledger.create(directory, sessions * 100)
    ledger.session[:] = np.repeat(np.arange(sessions), 100)
    ledger.seq[:] = np.tile(np.arange(100), sessions)
    ledger.scheduled_us[:] = np.arange(sessions * 100) + 1_000_000
    ledger.write_plan(Plan(0xAB, 500.0, "constant", sessions, sessions * 100, "input", 1_000_000))
    return ledger


def test_written_values_are_read_back(tmp_path: Path) -> None:
    written = make(tmp_path / "ledger")
    written.sent_us[7], written.acked_us[7], written.partition[7], written.offset[7] = 11, 12, 1, 2**40
    read = Ledger.open(tmp_path / "ledger")
    assert len(read) == 300
    for name, dtype in DTYPES.items():
        assert getattr(read, name).dtype == dtype
        assert (getattr(read, name) == getattr(written, name)).all()
    assert read.plan == Plan(0xAB, 500.0, "constant", 3, 300, "input", 1_000_000)
    assert json.loads((tmp_path / "ledger/plan.json").read_text()) == {
        "seed": 0xAB,
        "rate": 500.0,
        "shape": "constant",
        "sessions": 3,
        "events": 300,
        "topic": "input",
        "started_us": 1_000_000,
        "events_per_session": 100,
        "record_bytes": 0,
        "schema": 1,
    }


def test_a_fresh_ledger_has_no_attempts(tmp_path: Path) -> None:
    ledger = make(tmp_path)
    assert not ledger.sent_us.any()
    assert not ledger.acked_us.any()
    assert (ledger.partition == -1).all()
    assert (ledger.offset == -1).all()


def test_an_open_ledger_is_read_only_and_shows_later_writes(
    tmp_path: Path,
) -> None:
    written = make(tmp_path)
    read = Ledger.open(tmp_path)
    written.acked_us[5] = 99
    assert read.acked_us[5] == 99
    with pytest.raises(ValueError, match="read-only"):
        read.acked_us[5] = 1


def test_values_survive_a_kill_of_the_writer(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from loadgen.ledger import Ledger, Plan\n"
        "ledger = Ledger.create(Path(sys.argv[1]), 100)\n"
        "ledger.write_plan(Plan(1, 5.0, 'constant', 1, 100, 't', 1))\n"
        "ledger.sent_us[:40] = 17\n"
        "memoryview(ledger.acked_us)[39] = 18\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "ledger"], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    ledger = Ledger.open(tmp_path / "ledger")
    assert (ledger.sent_us == [17] * 40 + [0] * 60).all()
    assert ledger.acked_us[39] == 18


def test_a_ledger_is_never_overwritten(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(LedgerError, match="already holds a ledger; choose another ledger_dir or delete it"):
        Ledger.create(tmp_path, 100)


def test_a_ledger_without_a_plan_is_refused(tmp_path: Path) -> None:
    Ledger.create(tmp_path, 100)
    with pytest.raises(LedgerError, match=r"has no plan\.json: no load began there, or it ended before"):
        Ledger.open(tmp_path)


def test_a_ledger_of_another_schema_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    plan = tmp_path / "plan.json"
    plan.write_text(plan.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(LedgerError, match="is not a plan of schema 1"):
        Ledger.open(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"schema": 1, "colour": 2}'])
def test_a_damaged_plan_is_refused(tmp_path: Path, text: str) -> None:
    make(tmp_path)
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(LedgerError, match="plan"):
        Ledger.open(tmp_path)


def test_a_column_that_does_not_fit_the_plan_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    np.save(tmp_path / "seq.npy", np.zeros(299, dtype=np.uint8))
    with pytest.raises(LedgerError, match=r"seq\.npy has \(299,\) values of uint8, but the plan needs 300"):
        Ledger.open(tmp_path)


@pytest.mark.parametrize("keep_bytes", [0, 5, 500])
def test_a_missing_or_truncated_column_is_refused(tmp_path: Path, keep_bytes: int) -> None:
    make(tmp_path)
    column = tmp_path / "offset.npy"
    content = column.read_bytes()
    column.unlink()
    if keep_bytes:
        column.write_bytes(content[:keep_bytes])
    with pytest.raises(LedgerError, match=r"cannot read column .*offset\.npy"):
        Ledger.open(tmp_path)


def test_a_full_disk_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from loadgen.errors import LedgerError\n"
        "from loadgen.ledger import Ledger\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"  # stands for a full disk
        "try: Ledger.create(Path(sys.argv[1]), 1_000_000)\n"
        "except LedgerError as error: print(error); sys.exit(7)\n"
    )
    command = [sys.executable, "-c", code, tmp_path / "ledger"]
    done = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert "cannot make a ledger of 1000000 events" in done.stdout
