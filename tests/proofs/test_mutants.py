"""Every wrong detail is found by both auditors, under its code and no other; without it the same run shows nothing."""

from __future__ import annotations

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
from oncebench.audit.verdict import KEPT, Facts, decide
from oncebench.sinks.registry import SINKS
from proofs.mutants import histories
from proofs.mutants.mutants import MUTANTS, Mutant
from proofs.protocol_model.variants import GROUPS
from tests import ROOT
from tests.proofs.test_second import files_of

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
def test_a_wrong_detail_is_found_by_both_auditors_under_its_code_and_no_other(
    mutant: Mutant, tmp_path: Path, database: duckdb.DuckDBPyConnection
) -> None:
    record = mutant.shown(tmp_path / "run")
    findings = audit(record)
    assert sorted(findings.counts()) == mutant.codes.split()
    with database.cursor() as con:
        second = count.count(con, files_of(record))
    assert compare(counts_of(findings), second).reasons == ()
    facts = Facts(mutant.guarantee, failed=True, untrusted=("SRC",) if findings.anomalies["SRC"].count else ())
    assert decide(findings.counts(), facts).word != KEPT


@each
def test_without_the_detail_the_same_run_shows_what_its_guarantee_allows(mutant: Mutant, tmp_path: Path) -> None:
    assert sorted(audit(mutant.sound(tmp_path / "run")).counts()) == mutant.otherwise.split()


def test_there_is_a_mutant_for_every_row_of_the_plan_and_every_code_that_accuses() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert names == [f"M{number:02}" for number in range(1, len(MUTANTS) + 1)]
    assert len(names) >= 33
    found = {code for mutant in MUTANTS for code in mutant.codes.split()}
    # These accuse nobody: the run was not watched to its end; a metric.
    assert found == CATALOGUE.keys() - {"PEND", "EXPO"}


def test_every_defence_has_an_off_switch() -> None:
    defences = {mutant.defence for mutant in MUTANTS}
    assert defences >= {
        "marker",
        "fencing",
        "journal",
        "ledger in the same transaction",
        "txnVersion of its own checkpoint",
    }
    assert "hidden until renamed" in defences


def test_what_is_said_to_show_it_elsewhere_is_there() -> None:
    for kind, name in (where.split(": ", 1) for mutant in MUTANTS for where in mutant.elsewhere):
        if kind == "test":
            path, test = name.split("::")
            assert f"def {test}(" in (ROOT / path).read_text(), name
        else:
            assert name in {"demonstrator": DEMONSTRATORS, "model": VARIANTS}[kind], name


def test_the_page_has_a_row_for_each_mutant_and_for_each_defence() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^\| (M\d\d)\*? \| .*$", page, re.MULTILINE) == [mutant.name for mutant in MUTANTS]
    lines = page.splitlines()
    assert not [row(mutant) for mutant in MUTANTS if row(mutant) not in lines]
    assert not [each.defence for each in MUTANTS if each.defence and f"| {each.defence} |" not in page]


def row(mutant: Mutant) -> str:
    """A mutant as the page shows it."""
    elsewhere = "; ".join(map(told, mutant.elsewhere)) or ("not shown" if mutant.live else "-")
    name, codes = mutant.name + "*" * mutant.live, mutant.codes.replace(" ", ", ")
    otherwise = mutant.otherwise.replace(" ", ", ") or "nothing"
    return f"| {name} | {mutant.wrong} | {mutant.where} | {codes} | {otherwise} | {elsewhere} |"


def told(elsewhere: str) -> str:
    """Where else it is shown, and with which code."""
    kind, name = elsewhere.split(": ", 1)
    if kind == "test":
        return "`" + name.rsplit("/", 1)[-1].split("::")[0] + "`"
    return f"`{name}` {DEMONSTRATORS[name]}" if kind == "demonstrator" else f"model: {name}, {VARIANTS[name]}"


def test_partitions_of_what_is_no_log_scatter_nothing_for_both_auditors(database: duckdb.DuckDBPyConnection) -> None:
    scattered = histories.dealt_out()
    files = replace(scattered, ends={**scattered.ends, "output_is_log": False})
    with database.cursor() as con:
        second = count.count(con, files_of(files))
    assert compare(counts_of(audit(files)), second).reasons == ()
    assert second["SCAT"] == 0
