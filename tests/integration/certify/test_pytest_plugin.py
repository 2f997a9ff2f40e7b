"""The page's own example under pytest.

Its first sink fails the test, and its repaired sink passes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = (ROOT / "docs" / "certify.md").read_text()
# tests/unit/certify/test_page.py checks it against the command that the fixture runs.
(COMMAND,) = re.findall(r"^      (oncebench certify my_sink.* --require .*)$", PAGE, re.MULTILINE)


def block(name: str) -> str:
    """The code of the page under a comment with this name."""
    (found,) = re.findall(rf"^<!-- {re.escape(name)} -->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.mark.parametrize("repaired", [False, True], ids=["appends", "repaired"])
def test_the_example_of_the_page_fails_until_its_sink_is_repaired(repaired: bool, tmp_path: Path) -> None:
    repair = block("the repair") if repaired else ""
    (tmp_path / "my_sink.py").write_text(f"{block('my_sink.py')}\n\n{repair}")
    (tmp_path / "test_my_sink.py").write_text(block("test_my_sink.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'files'}"],
        capture_output=True, text=True, timeout=880, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))},
    )  # fmt: skip
    assert done.returncode == (0 if repaired else 1), done.stdout + done.stderr
    assert "Traceback" not in done.stdout
    if not repaired:
        assert "my_sink:write_batch breaks exactly-once." in done.stdout
        assert re.search(r"^kill-after-call: \d+ extra copies", done.stdout, re.MULTILINE)
        assert re.search(r"^  DUP, for example: row ", done.stdout, re.MULTILINE)
        assert f"\n  {COMMAND}\n" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {
        "my_sink.py", "test_my_sink.py", "rows.sqlite", "files",
    }  # fmt: skip
