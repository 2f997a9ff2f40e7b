"""The notebook of `examples/` runs from its first cell to its last.

It shows what its text promises.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oncebench.lab.lab import Lab
from tests import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

NOTEBOOK: dict[str, Any] = json.loads((ROOT / "examples" / "kill_a_job.ipynb").read_text())
CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
SHOW = "import json, sys; json.dump(results, sys.stderr)"


def test_at_least_once_shows_the_duplicates_of_a_kill_and_exactly_once_none(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text("\n\n".join(["".join(cell["source"]) for cell in CELLS] + [SHOW]))
    done = subprocess.run(
        [sys.executable, "cells.py"], cwd=tmp_path, env={**lab.environment(), "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stderr)
    assert results["at-least-once"]["lost"] == 0
    assert results["at-least-once"]["duplicated"] > 0
    assert results["exactly-once"] == {"lost": 0, "duplicated": 0}
    assert not list(tmp_path.glob("kill-a-job-*")), "it removes its folder"
