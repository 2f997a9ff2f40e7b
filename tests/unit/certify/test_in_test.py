"""The fixture `certify` of pytest: what it runs, and how a test fails.

A start of pytest loads no other part of the suite.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oncebench.certify import in_test
from oncebench.certify.in_test import Certify
from oncebench.certify.junit import junit
from oncebench.certify.request import Request
from oncebench.certify.scenarios import HEALTHY
from oncebench.processes.child import Child
from tests import ROOT
from tests.unit.certify.test_kept import GIVEN, outcome

MINE = "def write(df, batch_id): pass\ndef read(): return []\ndef empty(): pass\nother = lambda: []\n"
# Stands for the command: notes how it was called, writes JUnit XML, prints, and ends.
COMMAND = """
import json, os, sys
from pathlib import Path
words, (says, junit, code) = sys.argv[2:], json.loads(sys.argv[1])
file = Path(words[words.index("--junit") + 1])
called = {"words": words, "cwd": os.getcwd(), "path": os.environ["PYTHONPATH"]}
file.with_name("called.json").write_text(json.dumps(called))
if junit:
    file.write_text(junit)
    file.with_name("certificate.md").touch()
print(says)
sys.exit(code)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the user in a folder that is not the working directory."""
    folder = tmp_path / "user" / "tests" / "of_mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "sink.py").write_text(MINE)
    monkeypatch.chdir(tmp_path / "user")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("of_mine", "of_mine.sink"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("of_mine.sink")


def ends(monkeypatch: pytest.MonkeyPatch, code: int, xml: str = "", says: str = "") -> None:
    """Makes the command end so."""
    monkeypatch.setattr(in_test, "COMMAND", (sys.executable, "-c", COMMAND, json.dumps([says, xml, code])))


def fails(mine: ModuleType, folder: Path, **more: Any) -> str:
    """Returns the text with which a test fails."""
    with pytest.raises(pytest.fail.Exception) as failed:
        Certify(folder)(mine.write, reader=mine.read, **more)
    assert not failed.value.pytrace
    return str(failed.value)


def test_the_command_runs_in_the_users_folder_with_the_names_of_the_functions(
    mine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(monkeypatch, 0)
    certify = Certify(tmp_path)
    certify(
        mine.write, reader=mine.read, setup=mine.empty, scenarios=["replay", "zombie"], require="at-least-once",
        spark={"spark.jars": "a.jar"},
    )  # fmt: skip
    certify(mine.write, reader=mine.read)
    first, second = (json.loads((tmp_path / f"certify-{number}" / "called.json").read_text()) for number in (1, 2))
    assert first["words"][:-8] == [
        "certify", "of_mine.sink:write", "--reader", "of_mine.sink:read", "--setup", "of_mine.sink:empty",
        "--spark", "spark.jars=a.jar", "--only", "replay", "--only", "zombie", "--require", "at-least-once",
    ]  # fmt: skip
    assert second["words"][:-8] == [
        "certify", "of_mine.sink:write", "--reader", "of_mine.sink:read", "--require", "exactly-once",
    ]  # fmt: skip
    assert all(word.startswith(str(tmp_path / "certify-1")) for word in first["words"][-7::2])
    assert first["cwd"] == str(tmp_path / "user")
    assert first["path"].split(os.pathsep) == [str(tmp_path / "user" / "tests"), str(ROOT)]


def test_the_command_takes_these_options(mine: ModuleType, tmp_path: Path) -> None:
    """The real command: it refuses a module that it cannot import, so it has read every option."""
    (tmp_path / "user" / "tests" / "of_mine" / "sink.py").write_text("import absent\n")
    assert "of_mine.sink:write was not certified. module 'of_mine.sink' imports 'absent'" in fails(
        mine, tmp_path, setup=mine.empty, scenarios="replay", spark={"spark.jars": "a.jar"}
    )


def test_a_broken_guarantee_fails_with_an_example_and_the_command(
    mine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xml = junit(Request(GIVEN), [outcome(HEALTHY), outcome(DUP=60)])
    ends(monkeypatch, 3, xml)
    assert fails(mine, tmp_path) == (
        "of_mine.sink:write breaks exactly-once.\n\n"
        "kill-after-call: 60 extra copies (DUP: rows visible more than once)\n"
        "  DUP, for example: row 1-00000004:7, visible 2 times, made from the input at partition 1, offset 90\n"
        "  PYTHONPATH=tests oncebench certify mine:write --reader mine:read --only kill-after-call\n\n"
        f"The certificate and the log are in {tmp_path / 'certify-1'}"
    )


def test_a_scenario_without_an_answer_fails_the_test(
    mine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(monkeypatch, 1, junit(Request(GIVEN), [outcome(HEALTHY), outcome(verdict="vacuous")]))
    text = fails(mine, tmp_path)
    assert text.startswith("of_mine.sink:write is not proven to keep exactly-once.\n\nkill-after-call has no answer: ")
    assert "healthy" not in text


def test_an_error_that_ended_the_command_is_no_scenario(
    mine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = COMMAND.replace('file.with_name("certificate.md").touch()', "pass")
    xml = junit(Request(GIVEN), [outcome(HEALTHY)], "Kafka died")
    words = (sys.executable, "-c", command, json.dumps(["oncebench: Kafka died", xml, 1]))
    monkeypatch.setattr(in_test, "COMMAND", words)
    assert fails(mine, tmp_path) == "of_mine.sink:write was not certified. Kafka died"


@pytest.mark.parametrize(
    ("code", "says", "why"),
    [
        (5, "starting\noncebench: no Java was found.\nInstall it", "no Java was found.\nInstall it"),
        (2, "oncebench: no module", "no module"),
        (2, "Error: Invalid value for '--require'", "log.txt:\nError: Invalid value for '--require'"),
        (-9, "12:00 loading", "log.txt:\n12:00 loading"),
    ],
)
def test_a_command_that_made_no_certificate_fails_with_its_error(
    code: int, says: str, why: str, mine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(monkeypatch, code, says=says)
    text = fails(mine, tmp_path)
    assert text.startswith("of_mine.sink:write was not certified. ")
    assert text.endswith(why)


def test_a_function_that_another_process_cannot_import_is_refused(mine: ModuleType, tmp_path: Path) -> None:
    def local() -> list[Any]:
        return []

    for function in (mine.other, local, partial(mine.read), Certify(tmp_path)):
        assert "certify: setup is " in (text := fails(mine, tmp_path, setup=function))
        assert "Define setup with `def` at the top level of a module." in text
    assert {path.name for path in tmp_path.iterdir()} == {"user"}


def test_the_command_is_gone_when_a_test_is_interrupted(
    mine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_test, "COMMAND", (sys.executable, "-c", "import time; time.sleep(60)"))
    started: list[Child] = []

    def interrupt(child: Child, _timeout_s: float) -> bool:
        started.append(child)
        raise KeyboardInterrupt

    monkeypatch.setattr(Child, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Certify(tmp_path)(mine.write, reader=mine.read)
    assert started[0].returncode == -signal.SIGKILL


def python(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(folder), str(ROOT)))
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "PYTEST_ADDOPTS": "-p no:cacheprovider"},
    )  # fmt: skip


def test_a_start_of_pytest_loads_no_other_part_of_the_suite(tmp_path: Path) -> None:
    code = "import sys, pytest; before = set(sys.modules); import oncebench.certify.pytest_plugin; "
    done = python("-c", f"{code}print(*sorted(set(sys.modules) - before))", folder=tmp_path)
    assert {name for name in done.stdout.split() if "." in name or name == "oncebench"} == {
        "oncebench", "oncebench.certify", "oncebench.certify.pytest_plugin", "oncebench.delivery",
        "oncebench.delivery.failpoints",
    }  # fmt: skip


def test_pytest_finds_the_fixture_by_the_projects_entry_point(tmp_path: Path) -> None:
    """The entry point is read from pyproject.toml.

    Therefore the test does not depend on what is installed.
    """
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    (info := tmp_path / "entry-1.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: entry\nVersion: 1\n")
    lines = [f"{name} = {module}" for name, module in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    (tmp_path / "test_mine.py").write_text(
        "def write(df, batch_id): pass\ndef test_mine(certify):\n    certify(write, reader=lambda: [])\n"
    )
    done = python("-m", "pytest", "-q", str(tmp_path), folder=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "certify: reader is test_mine.test_mine.<locals>.<lambda>. Another" in done.stdout
    assert "in_test.py" not in done.stdout
    assert "Traceback" not in done.stdout
