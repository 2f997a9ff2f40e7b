"""Sinks of installed packages: found by their entry point.

No package breaks another sink.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.delivery.errors import RefusedStart
from oncebench.downloads import maven
from oncebench.errors import MissingEnvironment, UserError
from oncebench.lab import lab
from oncebench.scenario import profiles, supports
from oncebench.scenario.matrix import cells as matrix
from oncebench.servers import sink_servers
from oncebench.sinks import packages, registry
from tests import ROOT

OURS = {name for name in registry.SINKS if name not in registry.PACKAGES}
KIND = """
from dataclasses import replace
from oncebench.sinks.sqlite.sink import KINDS as SQLITE
KINDS = (replace(SQLITE[0], name={name!r}),)
"""
SUITE = """
from dataclasses import replace
from oncebench.sinks.sqlite.suite import SUITE_SINKS as SQLITE_SUITE
from {module} import KINDS
SUITE_SINKS = (replace(SQLITE_SUITE[0], kind=KINDS[0]),)
"""
SERVER = """
from oncebench.servers.service import Service
SERVICES = (Service("mine-server", "MINE", print, str, print, str),)
"""
Install = Callable[..., str]


def write(site: Path, module: str, files: Mapping[str, str], version: str = "1.0") -> str:
    """Puts a distribution with a sink into a folder, as pip does.

    Returns the distribution's name.
    """
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    distribution = module.replace("_", "-")
    info = site / f"{module}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[oncebench.sinks]\nmine = {module}\n")
    return distribution


def forget() -> None:
    packages.LEFT_OUT.clear()
    for cached in (packages.sink_packages, registry.suite_sinks, sink_servers.services):
        cached.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs packages for this process, which then has read the entry points again."""
    kept = dict(packages.LEFT_OUT)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def installed(module: str, files: Mapping[str, str]) -> str:
        name = write(tmp_path, module, files)
        forget()
        kinds, owners = registry.find_kinds()
        monkeypatch.setattr(registry, "SINKS", kinds)
        monkeypatch.setattr(registry, "PACKAGES", owners)
        monkeypatch.setattr(supports, "SINKS", kinds)
        return name

    yield installed
    forget()
    packages.LEFT_OUT.update(kept)
    for name in set(sys.modules) - before:
        if name.startswith("mine"):
            del sys.modules[name]


def one_file(name: str, module: str) -> dict[str, str]:
    return {f"{module}.py": KIND.format(name=name) + SUITE.replace("from {module} import KINDS\n", "")}


def test_a_package_of_one_file_is_a_sink_like_ours(install: Install) -> None:
    install("mine_a", one_file("mine", "mine_a"))
    assert registry.SINKS.keys() >= OURS | {"mine"}
    assert str(registry.PACKAGES["mine"]) == "mine-a 1.0"
    assert registry.suite_sinks()["mine"].kind is registry.find_kind("mine")
    assert "mine" in supports.installed()
    assert {row.sink for row in matrix.rows(["mine"])} == {"mine"}


def test_a_package_of_several_files_is_read_like_a_folder_of_ours(install: Install) -> None:
    files = {"sink.py": KIND.format(name="mine"), "suite.py": SUITE.format(module="mine_b.sink"), "server.py": SERVER,
             "__init__.py": "", "locks/mine-server.lock.toml": "dependencies = []"}  # fmt: skip
    install("mine_b", {f"mine_b/{name}": text for name, text in files.items()})
    assert "mine" in registry.SINKS
    assert "mine_b.suite" not in sys.modules, "a job needs no reader"
    assert "mine" in registry.suite_sinks()
    assert sink_servers.services().keys() >= {"postgres", "mine-server"}
    assert (maven.artifacts("mine-server"), "mine-server" in maven.bundles()) == ((), True)


BAD: Mapping[str, tuple[Mapping[str, str], str]] = {
    "import": ({"mine_c.py": "import no_such_module_at_all"},
               "importing mine_c raised ModuleNotFoundError (No module named 'no_such_module_at_all')"),
    "lines": ({"mine_c.py": "raise ValueError('first\\nsecond')"}, "importing mine_c raised ValueError (first)"),
    "exit": ({"mine_c.py": "raise SystemExit(7)"}, "importing mine_c raised SystemExit (7)"),
    "no-list": ({"mine_c.py": ""}, "mine_c has no KINDS"),
    "no-module": ({}, "there is no module 'mine_c'"),
    "wrong-type": ({"mine_c.py": "KINDS = ('lines',)"}, "a member is str, and must be SinkKind"),
    "no-tuple": ({"mine_c.py": "KINDS = 5"}, "importing mine_c raised TypeError ('int' object is not iterable)"),
    "taken": ({"mine_c.py": KIND.format(name="kafka")}, "the name 'kafka' belongs to oncebench"),
    "bad-name": ({"mine_c.py": KIND.format(name="../x")},
                 "the name '../x' must begin with a letter, and have only a-z, 0-9 and -"),
    "twice": ({"mine_c.py": KIND.format(name="m") + "KINDS += KINDS"}, "it lists 'm' twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_broken_package_is_named_in_one_line_and_breaks_no_other_sink(
    install: Install, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    files, reason = BAD[case]
    install("mine_c", files)
    assert registry.SINKS.keys() >= OURS
    assert "mine-c" not in {each.distribution for each in registry.PACKAGES.values()}
    (said,) = [line for line in caplog.messages if "mine-c" in line]
    assert said.startswith(f"the sinks of mine-c 1.0 cannot be used: {reason}. ")
    assert "or uninstall it" in said
    with pytest.raises(RefusedStart, match="there is no sink 'mine'") as refused:
        registry.find_kind("mine")
    assert reason in str(refused.value)
    with pytest.raises(UserError, match="unknown sink 'mine'") as unknown:
        supports.require_sinks(["mine"])
    assert reason in str(unknown.value)


def test_of_two_packages_with_one_name_the_second_is_left_out(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("mine_d", one_file("mine", "mine_d"))
    install("mine_e", one_file("mine", "mine_e"))
    assert registry.PACKAGES["mine"].distribution == "mine-d"
    assert "the sinks of mine-e 1.0 cannot be used: the name 'mine' belongs to mine-d." in caplog.text


@pytest.mark.parametrize(
    ("suite", "reason"),
    [
        ("import no_such_module_at_all", "importing mine_f raised ModuleNotFoundError"),
        ("SUITE_SINKS = ()", "KINDS has mine, and SUITE_SINKS has none"),
        ("SUITE_SINKS = (5,)", "a member is int, and must be SuiteSink"),
    ],
)
def test_a_sink_that_only_jobs_can_use_is_refused_by_the_suite_alone(install: Install, suite: str, reason: str) -> None:
    install("mine_f", {"mine_f/__init__.py": "", "mine_f/sink.py": KIND.format(name="mine"), "mine_f/suite.py": suite})
    assert registry.find_kind("mine").name == "mine"
    assert "mine" not in supports.installed()
    assert registry.suite_sinks().keys() >= OURS
    with pytest.raises(RefusedStart, match=r"mine cannot be run here: the suite side of mine-f 1\.0") as refused:
        registry.suite_sinks()["mine"]
    assert reason in str(refused.value)


def test_a_server_that_no_package_lists_is_named() -> None:
    with pytest.raises(UserError, match="a sink needs the server 'nowhere', which its package does not list"):
        sink_servers.service("nowhere")


def test_looking_for_packages_imports_none(tmp_path: Path) -> None:
    write(tmp_path, "mine_g", {"mine_g.py": "raise SystemExit(7)"})
    code = "import sys; from oncebench.sinks.packages import sink_packages as s; print(s()); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
    )  # fmt: skip
    found, modules = done.stdout.splitlines()
    assert "distribution='mine-g', version='1.0', module='mine_g'" in found
    assert not {"mine_g", "pyspark"} & set(modules.split())


def test_a_sink_without_its_extra_is_listed_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = replace(registry.SINKS["sqlite"], missing="it needs the package pip-me")
    monkeypatch.setitem(registry.SINKS, "sqlite", missing)  # type: ignore[arg-type]
    shown = CliRunner().invoke(cli, ["list"]).output
    assert "sqlite runs only with --sink sqlite: it needs the package pip-me" in shown
    assert "sqlite" not in supports.installed()
    assert all(cell.sink != "sqlite" for cell in profiles.PROFILES["standard"].select_cells(None))
    assert profiles.PROFILES["standard"].select_cells(None, ["sqlite"])
    with pytest.raises(MissingEnvironment, match="sink sqlite cannot be used here: it needs the package pip-me"):
        lab.open_lab(tmp_path, sinks=["sqlite"]).__enter__()
