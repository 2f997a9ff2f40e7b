"""The catalogue: the docs quote its rules, and the audit uses its kinds."""

from __future__ import annotations

import re

import pytest

from oncebench.audit.anomalies import CATALOGUE, TERMS, terms_of
from oncebench.audit.python.audit import audit
from oncebench.record.json_lines import Lines
from tests import ROOT
from tests.unit.audit.audit_world import make_record, make_world

PAGE = ROOT / "docs" / "anomalies.md"


def table(heading: str) -> list[list[str]]:
    """The cells of the table with that heading."""
    lines = PAGE.read_text().split(heading, 1)[1].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_the_docs_quote_the_catalogue_in_its_order() -> None:
    assert table("| code | what it means | exact rule | it counts | kinds |") == [
        [code.name, code.means, code.rule, code.unit, ", ".join(code.kinds) or "-"] for code in CATALOGUE.values()
    ]


def test_the_docs_quote_the_terms_of_the_rules() -> None:
    assert table("| in a rule | stands for |") == [[term, meaning] for term, meaning in TERMS.items()]


def test_the_audit_divides_each_count_into_its_catalogue_kinds() -> None:
    world = make_world(2, 1)
    for ended in ((), ({"event": "drained"},), ({"event": "stalled"},), ({"event": "start-timed-out"},)):
        found = audit(make_record(world, world.rows[1:], timeline=Lines(ended))).anomalies
        kinds = {code: tuple(anomaly.split) for code, anomaly in found.items()}
        if not ended or ended[0]["event"] != "drained":
            kinds["QUAR"] = CATALOGUE["QUAR"].kinds  # not counted in a run that did not drain
        assert kinds == {code.name: code.kinds for code in CATALOGUE.values()}


@pytest.mark.parametrize(
    ("rule", "terms"),
    [
        (CATALOGUE["LOSS"].rule, ["E", "m(x)", "covered"]),
        (CATALOGUE["DUP"].rule, ["E", "m(x)"]),
        (CATALOGUE["PHAN"].rule, ["E"]),
        (CATALOGUE["TORN"].rule, ["covered"]),
        (CATALOGUE["ORPH"].rule, []),
        ("ELSE, discovered, m(y)", []),
    ],
)
def test_a_rule_uses_the_terms_that_are_words_in_it(rule: str, terms: list[str]) -> None:
    assert terms_of(rule) == terms


def test_every_term_is_used_by_some_rule() -> None:
    assert {term for code in CATALOGUE.values() for term in terms_of(code.rule)} == TERMS.keys()


def test_rules_and_meanings_fit_one_table_line() -> None:
    for code in CATALOGUE.values():
        assert not re.search(r"[|\n]", code.means + code.rule), code.name
