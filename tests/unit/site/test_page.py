"""The page and what lies beside it: all from runs/, closed to the outside, small enough, and told of in words."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.audit.anomalies import CATALOGUE, TERMS
from oncebench.cli import cli
from oncebench.errors import UserError
from oncebench.site import lists, page, write
from oncebench.site.data import as_script, data_of
from oncebench.site.stored import Stored, stored_in, take_in
from tests import sample_reports

TEMPLATE = Path(page.__file__).parent / "template"
MOST_LINES, MOST_COLUMNS = 400, 120
MOST_BYTES = 1_000_000


def some() -> list[dict[str, Any]]:
    """Few reports that have everything in them."""
    faulted = [each for each in sample_reports.faulted(1) if each["cell"]["sink"] == "kafka"]
    return [*(each for each in sample_reports.healthy(5) if each["cell"]["sink"] == "kafka"), *faulted]


def stored(reports: list[dict[str, Any]]) -> list[Stored]:
    return [Stored(report, "a.jsonl", line) for line, report in enumerate(reports, 1)]


def read(script: str) -> Any:
    assert script.startswith("window.ONCEBENCH=")
    return json.loads(script.removeprefix("window.ONCEBENCH=").removesuffix(";\n"))


def test_a_thousand_runs_are_a_page_of_less_than_a_megabyte(tmp_path: Path) -> None:
    made = sample_reports.thousand()
    data = as_script(data_of(stored(made)))
    assert len(read(data)["runs"]["way"]) == 1000
    assert len(data.encode()) + len(page.page(data).encode()) <= MOST_BYTES


def test_every_run_names_its_file_and_line(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path, made := some())
    with (folder / "runs" / "cost-20260101-000000.jsonl").open("a") as file:
        file.write("\n" + json.dumps(made[0]) + "\n")  # a line was left empty
    runs = data_of(stored_in(folder))["runs"]
    files = {name: (folder / "runs" / name).read_text().splitlines() for name in runs["files"]}
    for at, number in enumerate(runs["line"]):
        report = json.loads(files[runs["files"][runs["file"][at]]][number - 1])
        assert (report["seed"], report["rows"]["lost"]) == (runs["seed"][at], runs["lost"][at])
    assert len(runs["line"]) == len(made) + 1


def test_older_reports_make_a_page_with_nothing_where_they_have_nothing() -> None:
    told = data_of(stored([sample_reports.older(each) for each in some()]))
    assert told["timelines"] == []
    assert all(curves == [] for curves in told["curves"]["settings"])
    assert told["about"]["machines"] == [f"not recorded ({len(some())} runs)"]
    assert told["matrix"]["cells"]["way"]


def test_the_page_tells_the_rule_of_each_code_that_some_run_shows_and_what_its_words_stand_for() -> None:
    made = some()
    told = data_of(
        stored([{**made[0], "anomalies": {"STALE": 1, "LOSS": 2}}, *({**each, "anomalies": {}} for each in made)])
    )
    assert list(told["codes"]) == ["LOSS", "STALE"]
    loss = CATALOGUE["LOSS"]
    assert told["codes"]["LOSS"] == {"means": loss.means, "rule": loss.rule, "terms": ["E", "m(x)", "covered"]}
    assert told["terms"] == TERMS


def test_the_page_tells_when_the_servers_take_a_commit_for_safe() -> None:
    made = some()
    told = {"kafka": {"replicas": "1", "flush.messages": str(2**63 - 1)}, "postgres": {"fsync": "on"}}
    asked = [{**each, "environment": {**each.get("environment", {}), "durability": told}} for each in made[:2]]
    assert data_of(stored([*asked, *made[2:]]))["about"]["durability"] == [
        "kafka: replicas 1, flush.messages never (2 runs)",
        "postgres: fsync on (2 runs)",
    ]


def test_the_same_reports_make_the_same_page() -> None:
    first, second = (as_script(data_of(stored(some()))) for _ in range(2))
    assert first == second
    assert page.page(first) == page.page(second)


def test_no_text_of_a_report_can_end_the_script_or_be_markup() -> None:
    (made, *_) = some()
    data = as_script(data_of(stored([{**made, "verdict": "unknown", "reasons": [sample_reports.HOSTILE + "\u2028"]}])))
    assert "<" not in data
    assert "\u2028" not in data
    assert sample_reports.HOSTILE.split()[1] in json.dumps(read(data)["text"]["words"])
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_script({"figure": float("nan")})


def test_the_page_lets_nothing_in_but_its_own_data() -> None:
    made = page.page("window.ONCEBENCH={};\n")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', made)
    assert policy is not None
    told = {name: values for name, *values in (part.split() for part in policy[1].split("; "))}
    assert told["default-src"] == told["base-uri"] == told["form-action"] == ["'none'"]
    assert told["img-src"] == ["data:"]
    assert not any(word in policy[1] for word in ("unsafe", "http:", "https:", "*", "'self'"))
    assert re.findall(r'(?:src|href)="(?!#)([^"]+)"', made) == [
        "data:,", "tables/runs.csv", "tables/faults.csv", "tables/costs.csv", "data.js"
    ]  # fmt: skip
    assert (
        re.search(
            r"\b(fetch|XMLHttpRequest|import\(|eval|innerHTML|outerHTML|insertAdjacentHTML|document\.write)\b", made
        )
        is None
    )


def test_the_policys_nonce_cannot_be_known_before_the_data_is() -> None:
    nonces = {re.findall(r"'nonce-([^']+)'", page.page(data))[0] for data in ("a", "b")}
    assert len(nonces) == 2


def test_a_mark_within_the_sources_is_not_filled_in() -> None:
    assert page._filled("{{a}} {{b}}", {"a": "{{b}}", "b": "x"}) == "{{b}} x"


@pytest.mark.parametrize("path", sorted(TEMPLATE.iterdir()), ids=lambda path: path.name)
def test_sources_of_the_page_are_small_and_used(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES
    assert max(map(len, text.splitlines())) <= MOST_COLUMNS
    assert path.name in (*page.SCRIPTS, *page.STYLES, "page.html")
    assert text.startswith(("// ", "/* ", "<!doctype html>")), "a source says what it is for"


def test_tables_beside_the_page_have_a_line_for_each_run_cell_and_cost() -> None:
    made = some()
    runs = list(csv.DictReader(io.StringIO(lists.runs(stored(made)))))
    assert [(row["file"], row["line"]) for row in runs] == [("a.jsonl", str(line)) for line in range(1, len(made) + 1)]
    cells = list(csv.DictReader(io.StringIO(lists.cells(made))))
    assert len(cells) == len(data_of(stored(made))["matrix"]["cells"]["way"])
    assert {row["verdict"] for row in cells} <= {"kept", "unknown", "vacuous", "broken", "limit"}
    costs = list(csv.DictReader(io.StringIO(lists.costs(made))))
    (row,) = (each for each in costs if (each["variant"], each["metric"]) == ("two-phase", "p99_ms"))
    assert float(row["ratio low"]) <= float(row["ratio"]) <= float(row["ratio high"])
    assert row["rounds"] == "5"


def test_a_table_of_which_there_is_nothing_is_not_left_from_an_earlier_time(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path, some())
    write.publish(folder)
    assert (folder / "tables" / "costs.md").exists()
    (runs,) = (folder / "runs").glob("cost-*.jsonl")
    runs.write_text("".join(json.dumps(each) + "\n" for each in some() if each["cell"]["faults"]))
    write.publish(folder)
    assert not (folder / "tables" / "costs.md").exists()


def test_publishing_writes_the_page_and_all_tables_beside_runs(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path, some())
    before = sorted(folder.rglob("*.jsonl"))
    written = write.publish(folder)
    assert [str(path.relative_to(folder)) for path in written[:2]] == ["index.html", "data.js"]
    assert sorted(folder.rglob("*.jsonl")) == before
    assert sorted(path for path in folder.rglob("*") if path.is_file() and path not in before) == sorted(written)


def test_a_folder_without_reports_says_how_to_come_by_some(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="compare --publish"):
        write.publish(tmp_path)


def test_a_file_of_ones_own_is_taken_in_and_may_grow_but_not_be_replaced(tmp_path: Path) -> None:
    mine, published = tmp_path / "mine.jsonl", tmp_path / "results"
    first, second = (json.dumps(each) + "\n" for each in some()[:2])
    mine.write_text(first)
    assert take_in([mine], published) == [published / "runs" / "mine.jsonl"]
    mine.write_text(first + second)
    take_in([mine], published)
    assert len(stored_in(published)) == 2
    assert take_in([published], published) == []  # what is there is not copied onto itself
    mine.write_text(second)
    with pytest.raises(UserError, match="holds other reports"):
        take_in([mine], published)
    with pytest.raises(UserError, match="no file of reports"):
        take_in([tmp_path / "report.json"], published)
    assert len(stored_in(published)) == 2


def test_the_command_publishes_what_is_in_results_and_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sample_reports.write(Path("results"), some())
    sample_reports.write(Path("results/local"), some()[:1])
    mine = Path("results/local/runs/cost-20260101-000000.jsonl").rename("results/local/runs/mine.jsonl")
    with pytest.raises(UserError, match="would count twice"):
        CliRunner().invoke(cli, ["table", "--publish", f"{mine}"], catch_exceptions=False, standalone_mode=False)
    mine.write_text(mine.read_text().replace(some()[0]["run"], "another-run"))
    done = CliRunner().invoke(cli, ["table", "--publish", f"{mine}"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "results/index.html" in done.output
    assert len(read(Path("results/data.js").read_text())["runs"]["way"]) == len(some()) + 1


def test_csv_and_publish_together_are_refused() -> None:
    with pytest.raises(UserError, match="--csv has no effect with --publish"):
        CliRunner().invoke(cli, ["table", "--publish", "--csv"], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize("in_git", [True, False])
def test_publishing_into_a_clone_says_how_to_undo_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_git: bool
) -> None:
    sample_reports.write(tmp_path / "results", some())
    if in_git:
        (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["table", "--publish"])
    assert done.exit_code == 0
    assert ("`git checkout results && git clean -f results`" in done.stderr) is in_git
