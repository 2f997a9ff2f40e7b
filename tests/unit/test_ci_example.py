"""The example for CI: its files can be read, and each shell step does what its name says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

yaml = pytest.importorskip("yaml")
FOLDER = ROOT / "examples" / "ci"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "certify" / "action.yml").read_text())
WORKFLOW: dict[str, Any] = yaml.safe_load((FOLDER / "workflow.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
SHELL = [name for name, step in STEPS.items() if "run" in step]


def run_step(name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a step as GitHub does: with `bash -eo pipefail`, and the action's defaults for inputs that are not given."""
    values = {key: field.get("default", "") for key, field in ACTION["inputs"].items()} | variables
    given = {
        variable: values[re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value)[1]]  # type: ignore[index]
        for variable, value in STEPS[name]["env"].items()
    }
    environment = {**os.environ, **given, "PATH": f"{folder}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": "summary"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_workflow_gives_the_action_its_inputs() -> None:
    (used,) = [step for step in WORKFLOW["jobs"]["certify"]["steps"] if step["uses"].endswith("/certify")]
    required = {name for name, field in ACTION["inputs"].items() if field.get("required")}
    assert required <= set(used["with"]) <= set(ACTION["inputs"])


@pytest.mark.parametrize("name", SHELL)
def test_no_input_is_run_as_a_command(name: str) -> None:
    assert "${{" not in STEPS[name]["run"]


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_step_certifies_with_its_inputs_and_keeps_the_exit_code(code: int, tmp_path: Path) -> None:
    program = tmp_path / "oncebench"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@"\nexit {code}\n')
    program.chmod(0o755)
    done = run_step(
        "Certify", tmp_path, function="a:w; exit 9", reader="a:r", setup="a:s", only="healthy zombie", output="out dir"
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines() == [
        "certify", "a:w; exit 9", "--reader", "a:r", "--require", "exactly-once", "--results", "out dir",
        "--certificate", "out dir/certificate.md", "--junit", "out dir/certificate.xml", "--setup", "a:s",
        "--only", "healthy", "--only", "zombie",
    ]  # fmt: skip
    assert (tmp_path / "out dir").is_dir()


def test_the_summary_has_the_certificate_if_there_is_one(tmp_path: Path) -> None:
    assert run_step("Show the certificate", tmp_path, output="out").returncode == 0
    assert not (tmp_path / "summary").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "certificate.md").write_text("# kept\n")
    assert run_step("Show the certificate", tmp_path, output="out").returncode == 0
    assert (tmp_path / "summary").read_text() == "# kept\n"
