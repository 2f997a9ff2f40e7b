"""A whole run over TLS and a login is kept, and leaves its secret nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ROOT
from tests.integration.kafka_access.secured import LOGIN, MUTUAL, PASSWORD, Secured
from tests.integration.kafka_access.test_connection import mutual

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
CANARY = PASSWORD.encode()
LOAD = ("--rate", "200", "--duration", "5", "--warmup", "0", "--max-events-per-batch", "100")


@contextmanager
def watched_processes() -> Iterator[set[str]]:
    """Collects the command lines and environments of other processes that have the secret."""
    found: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            for folder in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        text = (folder / name).read_bytes()
                    except OSError:
                        continue
                    if CANARY in text:
                        found.add(f"{name}: {text[:200]!r}")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


def files_with_the_secret(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and CANARY in path.read_bytes()]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from oncebench.cli import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir()
    return subprocess.run(command, capture_output=True, cwd=folder, env=environment, timeout=500, check=False)


@pytest.mark.parametrize(("listener", "variant"), [(LOGIN, "two-phase"), (LOGIN, "idempotent"), (MUTUAL, "two-phase")])
def test_a_run_with_a_kill_is_kept_and_leaves_no_secret(
    secured: Secured, tmp_path: Path, listener: str, variant: str
) -> None:
    settings = secured.settings() if listener == LOGIN else mutual(secured, PASSWORD)
    conf = secured.file(settings)
    assert CANARY in conf.read_bytes()  # or nothing could leak
    with watched_processes() as leaks:
        done = run(
            tmp_path, "run", "--sink", "kafka", "--guarantee", "exactly-once", "--variant", variant, *LOAD,
            "--fault", "after-prepare:kill" if variant == "two-phase" else "after-commit:kill",
            "--bootstrap-servers", secured.servers(listener), "--kafka-conf", str(conf), "--work-dir", "work",
            "--keep", "--json", "report.json",
        )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] == "kept"
    security = report["environment"]["kafka"]["security"]
    assert (security["protocol"], security["weaknesses"]) == ("SASL_SSL" if listener == LOGIN else "SSL", [])
    assert f"--kafka-conf {conf}" in report["reproduce"]
    assert leaks == set()
    assert CANARY not in done.stdout + done.stderr
    assert files_with_the_secret(tmp_path) == []


def test_a_switched_off_check_of_the_host_name_is_printed(secured: Secured, tmp_path: Path) -> None:
    conf = secured.file(secured.settings())
    done = run(
        tmp_path, "run", "--sink", "files-jsonl", "--guarantee", "at-least-once", *LOAD,
        "--kafka-set", "ssl.endpoint.identification.algorithm=",
        "--bootstrap-servers", secured.servers(), "--kafka-conf", str(conf), "--work-dir", "work",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert b"INSECURE    the host names of Kafka's brokers are not checked" in done.stdout


def test_a_load_sends_over_tls_and_a_login(secured: Secured, tmp_path: Path) -> None:
    conf = secured.file(secured.settings("PLAIN"))
    words = ("--bootstrap-servers", secured.servers(), "--kafka-conf", str(conf), "--work-dir", "work", "--json")
    began = time.monotonic()
    done = run(tmp_path, "load", "--rate", "1000", "--duration", "2", *words)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["acknowledged"] >= 1900
    assert time.monotonic() - began < 60
    assert files_with_the_secret(tmp_path) == []
