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
    """Runs a step as GitHub does: with `bash -eo pipefail`.

    Inputs that are not given have the action's defaults.
    """
    values = {key: field.get("default", "") for key, field in ACTION["inputs"].items()} | variables
    given = {
        variable: values[re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value)[1]]  # type: ignore[index]
        for variable, value in STEPS[name].get("env", {}).items()
    }
    files = {"GITHUB_STEP_SUMMARY": "summary", "GITHUB_OUTPUT": "outputs"}
    environment = {**os.environ, **given, **files, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_workflow_gives_the_action_its_inputs() -> None:
    (used,) = [step for step in WORKFLOW["jobs"]["certify"]["steps"] if step["uses"].endswith("/certify")]
    required = {name for name, field in ACTION["inputs"].items() if field.get("required")}
    assert required <= set(used["with"]) <= set(ACTION["inputs"])


@pytest.mark.parametrize("name", SHELL)
def test_no_input_is_run_as_a_command(name: str) -> None:
    assert "${{" not in STEPS[name]["run"]


def oncebench(folder: Path, code: int = 0) -> None:
    """Makes a program that prints its arguments, one per line."""
    program = folder / "oncebench"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@"\nexit {code}\n')
    program.chmod(0o755)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_step_certifies_with_its_inputs_and_keeps_the_exit_code(code: int, tmp_path: Path) -> None:
    oncebench(tmp_path, code)
    done = run_step(
        "Certify", tmp_path, function="a:w; exit 9", reader="a:r", setup="a:s", only="healthy zombie", output="out dir",
        options="--spark\nspark.jars=a b.jar\n\n--start-timeout\n400\n",
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines() == [
        "certify", "--reader", "a:r", "--require", "exactly-once", "--results", "out dir",
        "--certificate", "out dir/certificate.md", "--junit", "out dir/certificate.xml", "a:w; exit 9",
        "--setup", "a:s", "--only", "healthy", "--only", "zombie", "--spark", "spark.jars=a b.jar",
        "--start-timeout", "400",
    ]  # fmt: skip
    assert (tmp_path / "out dir").is_dir()


def test_a_format_needs_no_function_and_the_shell_reads_no_option(tmp_path: Path) -> None:
    oncebench(tmp_path)
    options = ("--format", "parquet", "--option", "path=$ONCEBENCH_OUTPUT/`x` *")
    done = run_step("Certify", tmp_path, reader="a:r", output="out", options="\n".join(options))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-5:] == ["out/certificate.xml", *options]


def test_the_files_of_an_earlier_run_are_not_shown_again(tmp_path: Path) -> None:
    oncebench(tmp_path, 2)
    (tmp_path / "out").mkdir()
    for name in ("certificate.md", "certificate.xml"):
        (tmp_path / "out" / name).write_text("older")
    assert run_step("Certify", tmp_path, function="a:w", reader="a:r", output="out").returncode == 2
    assert list((tmp_path / "out").iterdir()) == []
    assert {step["if"] for step in STEPS.values() if "if" in step} == {"always() && steps.certify.outcome != 'skipped'"}


def test_the_name_of_the_cache_changes_with_the_downloads(tmp_path: Path) -> None:
    (tmp_path / "oncebench" / "downloads" / "locks").mkdir(parents=True)
    for package in ("oncebench", "oncebench/downloads"):
        (tmp_path / package / "__init__.py").touch()
    found = []
    for text in ("a", "b", "b"):
        (tmp_path / "oncebench" / "downloads" / "locks" / "x.lock.toml").write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(tmp_path))
            done = run_step("Name the downloads", tmp_path)
        assert done.returncode == 0, done.stderr
        found.append((tmp_path / "outputs").read_text().splitlines()[-1])
    assert all(re.fullmatch("hash=[0-9a-f]{16}", each) for each in found)
    assert found[0] != found[1] == found[2]
    assert "steps.downloads.outputs.hash" in STEPS["Keep the jars and Kafka between runs"]["with"]["key"]


def test_two_uses_of_the_action_can_store_their_files_apart() -> None:
    assert STEPS["Store the certificate and the reports"]["with"]["name"] == "${{ inputs.artifact }}"
    assert ACTION["inputs"]["artifact"]["default"] == "oncebench"


def test_the_summary_has_the_certificate_if_there_is_one(tmp_path: Path) -> None:
    assert run_step("Show the certificate", tmp_path, output="out").returncode == 0
    assert not (tmp_path / "summary").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "certificate.md").write_text("# kept\n")
    assert run_step("Show the certificate", tmp_path, output="out").returncode == 0
    assert (tmp_path / "summary").read_text() == "# kept\n"
