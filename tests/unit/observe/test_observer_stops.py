"""SIGTERM while the observer opens its reader, possibly inside a C library's constructor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests import ROOT

OPENS_ITS_READER_AS_A_C_LIBRARY_DOES = """
import dataclasses, signal, sys
from oncebench.observe import observer

def read(target):
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException:
        raise TypeError("expected configuration property name as type unicode string")

kafka = dataclasses.replace(observer.suite_sinks()["kafka"], read=read)
observer.suite_sinks = lambda: {"kafka": kafka}
sys.exit(observer.main(sys.argv[1:]))
"""


def test_the_observer_stops_although_a_constructor_swallows_exceptions(tmp_path: Path) -> None:
    config = {"sink": "kafka", "target": {}, "observed_path": "o.arrow", "status_path": "o.jsonl"}
    (tmp_path / "observer.json").write_text(json.dumps(config))
    command = [sys.executable, "-c", OPENS_ITS_READER_AS_A_C_LIBRARY_DOES, str(tmp_path / "observer.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
