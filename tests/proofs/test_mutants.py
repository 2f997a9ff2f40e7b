"""Both auditors find every mutant under its codes, and nothing without the wrong detail."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from oncebench.audit.agreement import compare, counts_of
from oncebench.audit.anomalies import CATALOGUE
from oncebench.audit.python.audit import audit
from oncebench.audit.sql import count
from oncebench.audit.verdict import Facts, Verdict, decide
from oncebench.sinks.registry import SINKS
from proofs.mutants import histories
from proofs.mutants.mutants import MUTANTS, Mutant
from proofs.protocol_model.variants import GROUPS
from tests import ROOT
from tests.proofs.both_auditors import files_of

PAGE = ROOT / "docs" / "why_believe_it.md"
DEMONSTRATORS = {
    f"{kind.name}/{each.variant}": each.expected_anomaly for kind in SINKS.values() for each in kind.supports
}
VARIANTS = {variant.name: variant.expected or "allowed" for group in GROUPS.values() for variant in group}
each = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with count.connection() as con:
        yield con


@each
def test_both_auditors_find_the_mutant_under_its_codes(
    mutant: Mutant, tmp_path: Path, database: duckdb.DuckDBPyConnection
) -> None:
    record = mutant.mutated(tmp_path / "run")
    findings = audit(record)
    assert sorted(findings.counts()) == mutant.codes.split()
    with database.cursor() as con:
        second = count.count(con, files_of(record))
    assert compare(counts_of(findings), second).reasons == ()
    facts = Facts(mutant.guarantee, failed=True, untrusted=("SRC",) if findings.anomalies["SRC"].count else ())
    assert decide(findings.counts(), facts).verdict != Verdict.KEPT


@each
def test_the_run_without_the_detail_is_sound(mutant: Mutant, tmp_path: Path) -> None:
    assert sorted(audit(mutant.sound(tmp_path / "run")).counts()) == mutant.otherwise.split()


def test_every_anomaly_code_has_a_mutant() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert names == [f"M{number:02}" for number in range(1, len(MUTANTS) + 1)]
    assert len(names) >= 33
    found = {code for mutant in MUTANTS for code in mutant.codes.split()}
    # PEND (the run was not observed to its end), EXPO (a metric) and accepted losses are no violations.
    assert found == CATALOGUE.keys() - {"PEND", "EXPO", "GAP-ROWS", "GAP-EVENTS"}


def test_every_defence_has_a_mutant() -> None:
    defences = {mutant.defence for mutant in MUTANTS}
    assert defences >= {
        "marker",
        "fencing",
        "journal",
        "ledger in the same transaction",
        "txnVersion of its own checkpoint",
    }
    assert "hidden until renamed" in defences


def test_references_to_other_proofs_exist() -> None:
    for kind, name in (where.split(": ", 1) for mutant in MUTANTS for where in mutant.elsewhere):
        if kind == "test":
            path, test = name.split("::")
            assert f"def {test}(" in (ROOT / path).read_text(), name
        else:
            assert name in {"demonstrator": DEMONSTRATORS, "model": VARIANTS}[kind], name


def test_the_page_lists_every_mutant_and_defence() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^\| (M\d\d)\*? \| .*$", page, re.MULTILINE) == [mutant.name for mutant in MUTANTS]
    lines = page.splitlines()
    assert not [row(mutant) for mutant in MUTANTS if row(mutant) not in lines]
    assert not [each.defence for each in MUTANTS if each.defence and f"| {each.defence} |" not in page]


def row(mutant: Mutant) -> str:
    """The row of a mutant in the page's table."""
    elsewhere = "; ".join(map(reference, mutant.elsewhere)) or ("not shown" if mutant.on_servers else "-")
    name, codes = mutant.name + "*" * mutant.on_servers, mutant.codes.replace(" ", ", ")
    otherwise = mutant.otherwise.replace(" ", ", ") or "nothing"
    return f"| {name} | {mutant.wrong} | {mutant.where} | {codes} | {otherwise} | {elsewhere} |"


def reference(elsewhere: str) -> str:
    """The text for another proof of the same anomaly, with its code."""
    kind, name = elsewhere.split(": ", 1)
    if kind == "test":
        return "`" + name.rsplit("/", 1)[-1].split("::")[0] + "`"
    return f"`{name}` {DEMONSTRATORS[name]}" if kind == "demonstrator" else f"model: {name}, {VARIANTS[name]}"


def test_only_rows_of_a_log_can_be_scattered(database: duckdb.DuckDBPyConnection) -> None:
    scattered = histories.dealt_out()
    files = replace(scattered, ends={**scattered.ends, "output_is_log": False})
    with database.cursor() as con:
        second = count.count(con, files_of(files))
    assert compare(counts_of(audit(files)), second).reasons == ()
    assert second["SCAT"] == 0


def test_the_page_has_the_stored_outcomes_of_the_auditors_mutants() -> None:
    lines = PAGE.read_text().splitlines()
    for name, found in json.loads((ROOT / "proofs" / "mutants" / "outcomes.json").read_text()).items():
        path = ROOT / name
        changed = hashlib.sha256(path.read_bytes()).hexdigest() != found["sha256"]
        file = name.removeprefix("oncebench/audit/").removeprefix("python/")
        made, alive = found["mutants"], len(found["survivors"])
        row = f"| `{file}`{', an earlier version' if changed else ''} | {made} | {made - alive} | {alive} |"
        assert row in lines, row
