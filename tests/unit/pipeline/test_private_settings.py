"""Spark's settings reach the JVM without its command line."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

from oncebench.delivery.errors import RefusedStart
from pipeline.spark.private_settings import line_of
from pipeline.spark.session import session
from tests.unit.pipeline.test_second_try import CONFIG

SECRET = "hunter3"
VARIABLE = {"spark.executorEnv.ONCEBENCH_POSTGRES": f"postgresql://bench:{SECRET}@db1/bench"}


@pytest.mark.parametrize("master", ["local[1]", "spark://127.0.0.1:1"])
def test_a_setting_is_in_no_command_line_and_in_a_private_file(
    master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, Any] = {}

    def start(command: Sequence[str], env: dict[str, str], **_: object) -> None:
        seen["command"] = [*command]
        file = Path(command[command.index("--properties-file") + 1])
        seen["text"], seen["mode"] = file.read_text("utf-8"), stat.S_IMODE(file.stat().st_mode)
        raise OSError("no JVM in this test")

    monkeypatch.setattr(java_gateway, "Popen", start)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back afterwards
    with pytest.raises(RefusedStart, match="JVM did not start"):
        session(replace(CONFIG, master=master), VARIABLE)
    assert not any(SECRET in word for word in seen["command"]), "every user of the machine can read it"
    assert "--load-spark-defaults" in seen["command"], "without it, a file replaces the operator's own settings"
    assert seen["command"][-2:] == ["--verbose", "pyspark-shell"]
    assert SECRET in seen["text"]
    assert seen["mode"] == 0o600
    assert list(tmp_path.iterdir()) == [], "the file is gone when the JVM runs, or could not"
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"


def test_a_value_of_any_form_is_one_line() -> None:
    assert line_of("spark.a", "x") == "spark.a=x\n"
    assert line_of("spark.a:b", " #1\n\\=\r\tü") == "spark.a\\:b=\\ \\#1\\n\\\\\\=\\r\\tü\n"
