"""The page and its tables: all from the stored reports, nothing else loaded, size bounded."""

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
from oncebench.report.tables import engines
from oncebench.site import csv_tables, page, write
from oncebench.site.data import as_script, data_of
from oncebench.site.stored import Stored, stored_in, take_in
from tests import ROOT, sample_reports
from tests.unit.report.test_batches import batch_series

TEMPLATE = Path(page.__file__).parent / "template"
MOST_LINES, MOST_COLUMNS = 400, 120
MOST_BYTES = 1_000_000


def some() -> list[dict[str, Any]]:
    """A few reports with one of everything."""
    faulted = [each for each in sample_reports.faulted(1) if each["cell"]["sink"] == "kafka"]
    return [*(each for each in sample_reports.healthy(6) if each["cell"]["sink"] == "kafka"), *faulted]


def stored(reports: list[dict[str, Any]]) -> list[Stored]:
    return [Stored(report, "a.jsonl", line) for line, report in enumerate(reports, 1)]


def read(script: str) -> Any:
    assert script.startswith("window.ONCEBENCH=")
    return json.loads(script.removeprefix("window.ONCEBENCH=").removesuffix(";\n"))


def test_page_of_a_thousand_runs_is_below_a_megabyte(tmp_path: Path) -> None:
    made = sample_reports.thousand()
    data = as_script(data_of(stored(made)))
    assert len(read(data)["runs"]["configuration"]) == 1000
    assert len(data.encode()) + len(page.page(data).encode()) <= MOST_BYTES


def test_every_run_names_its_file_and_line(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path, made := some())
    with (folder / "runs" / "cost-20260101-000000.jsonl").open("a") as file:
        file.write("\n" + json.dumps(made[0]) + "\n")  # with an empty line before it
    runs = data_of(stored_in(folder))["runs"]
    files = {name: (folder / "runs" / name).read_text().splitlines() for name in runs["files"]}
    for at, number in enumerate(runs["line"]):
        report = json.loads(files[runs["files"][runs["file"][at]]][number - 1])
        assert (report["seed"], report["rows"]["lost"]) == (runs["seed"][at], runs["lost"][at])
    assert len(runs["line"]) == len(made) + 1


def test_missing_fields_of_older_reports_stay_empty() -> None:
    data = data_of(stored([sample_reports.older(each) for each in some()]))
    assert data["timelines"] == []
    assert all(curves == [] for curves in data["curves"]["settings"])
    assert data["about"]["machines"] == [f"not recorded ({len(some())} runs)"]
    assert data["matrix"]["cells"]["configuration"]


def test_page_has_rule_and_terms_of_each_code() -> None:
    made = some()
    data = data_of(
        stored([{**made[0], "anomalies": {"STALE": 1, "LOSS": 2}}, *({**each, "anomalies": {}} for each in made)])
    )
    assert list(data["codes"]) == ["LOSS", "STALE"]
    loss = CATALOGUE["LOSS"]
    assert data["codes"]["LOSS"] == {"means": loss.means, "rule": loss.rule, "terms": ["E", "m(x)", "covered"]}
    assert data["terms"] == TERMS


def test_page_has_the_durability_settings_of_servers() -> None:
    made = some()
    durability = {"kafka": {"replicas": "1", "flush.messages": str(2**63 - 1)}, "postgres": {"fsync": "on"}}
    recorded = [{**each, "environment": {**each.get("environment", {}), "durability": durability}} for each in made[:2]]
    assert data_of(stored([*recorded, *made[2:]]))["about"]["durability"] == [
        "kafka: replicas 1, flush.messages never (2 runs)",
        "postgres: fsync on (2 runs)",
    ]


def test_same_reports_make_the_same_page() -> None:
    first, second = (as_script(data_of(stored(some()))) for _ in range(2))
    assert first == second
    assert page.page(first) == page.page(second)


def test_report_text_cannot_end_the_script_or_be_markup() -> None:
    (made, *_) = some()
    data = as_script(data_of(stored([{**made, "verdict": "unknown", "reasons": [sample_reports.HOSTILE + "\u2028"]}])))
    assert "<" not in data
    assert "\u2028" not in data
    assert sample_reports.HOSTILE.split()[1] in json.dumps(read(data)["text"]["words"])
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_script({"figure": float("nan")})


def test_policy_allows_only_the_page_own_data() -> None:
    made = page.page("window.ONCEBENCH={};\n")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', made)
    assert policy is not None
    rules = {name: values for name, *values in (part.split() for part in policy[1].split("; "))}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert rules["img-src"] == ["data:"]
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


def test_nonce_depends_on_the_data() -> None:
    nonces = {re.findall(r"'nonce-([^']+)'", page.page(data))[0] for data in ("a", "b")}
    assert len(nonces) == 2


def test_mark_inside_a_replacement_stays() -> None:
    assert page._filled("{{a}} {{b}}", {"a": "{{b}}", "b": "x"}) == "{{b}} x"


@pytest.mark.parametrize("path", sorted(TEMPLATE.iterdir()), ids=lambda path: path.name)
def test_page_sources_are_small_used_and_described(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES
    assert max(map(len, text.splitlines())) <= MOST_COLUMNS
    assert path.name in (*page.SCRIPTS, *page.STYLES, "page.html")
    assert text.startswith(("// ", "/* ", "<!doctype html>")), "a source begins with a comment on its purpose"


def test_the_headline_says_that_a_ratio_is_a_median_of_ratios() -> None:
    note = (TEMPLATE / "headline.js").read_text().partition("function headlineNote")[2].partition("\n}")[0]
    assert "A ratio is the median of the rounds' ratios" in note


def test_csv_tables_have_a_line_for_each_run_cell_and_cost() -> None:
    made = some()
    runs = list(csv.DictReader(io.StringIO(csv_tables.runs(stored(made)))))
    assert [(row["file"], row["line"]) for row in runs] == [("a.jsonl", str(line)) for line in range(1, len(made) + 1)]
    cells = list(csv.DictReader(io.StringIO(csv_tables.cells(made))))
    assert len(cells) == len(data_of(stored(made))["matrix"]["cells"]["configuration"])
    assert {row["verdict"] for row in cells} <= {"kept", "unknown", "vacuous", "broken", "limit"}
    costs = list(csv.DictReader(io.StringIO(csv_tables.costs(made))))
    (row,) = (each for each in costs if (each["variant"], each["metric"]) == ("two-phase", "p99_ms"))
    assert float(row["ratio low"]) <= float(row["ratio"]) <= float(row["ratio high"])
    assert row["rounds"] == "6"


def test_table_without_content_is_removed(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path, some())
    write.publish(folder)
    assert (folder / "tables" / "costs.md").exists()
    (runs,) = (folder / "runs").glob("cost-*.jsonl")
    runs.write_text("".join(json.dumps(each) + "\n" for each in some() if each["cell"]["faults"]))
    write.publish(folder)
    assert not (folder / "tables" / "costs.md").exists()


def test_publishing_writes_page_and_tables_only(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path, some())
    before = sorted(folder.rglob("*.jsonl"))
    written = write.publish(folder).files
    assert [str(path.relative_to(folder)) for path in written[:2]] == ["index.html", "data.js"]
    assert sorted(folder.rglob("*.jsonl")) == before
    assert sorted(path for path in folder.rglob("*") if path.is_file() and path not in before) == sorted(written)


def test_the_page_links_to_those_guides_that_are_there(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path / "results", some())

    def links() -> list[str]:
        write.publish(folder)
        return re.findall(r'href="(\.\./[^"]+)"', (folder / "index.html").read_text())

    assert links() == []
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "glossary.md").write_text("")
    assert links() == ["../docs/glossary.md"]


def test_every_guide_is_in_the_repository() -> None:
    assert [path for path in write.GUIDES if not (ROOT / "results" / path).exists()] == []


def test_empty_folder_error_names_the_commands(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="compare --publish"):
        write.publish(tmp_path)


def test_added_file_may_grow_but_not_change(tmp_path: Path) -> None:
    mine, published = tmp_path / "mine.jsonl", tmp_path / "results"
    first, second = (json.dumps(each) + "\n" for each in some()[:2])
    mine.write_text(first)
    assert take_in([mine], published) == [published / "runs" / "mine.jsonl"]
    mine.write_text(first + second)
    take_in([mine], published)
    assert len(stored_in(published)) == 2
    assert take_in([published], published) == []  # a file is not copied onto itself
    assert take_in([mine], published) == []  # nor one with the same reports
    mine.write_text(second)
    with pytest.raises(UserError, match="holds other reports"):
        take_in([mine], published)
    with pytest.raises(UserError, match="no file of reports"):
        take_in([tmp_path / "report.json"], published)
    assert len(stored_in(published)) == 2


def test_a_series_with_other_engines_has_a_table_of_its_own(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path, made := some())
    spark = {**made[0], "run": "ob-spark", "series": "headline-1"}
    flink = {**spark, "run": "ob-flink", "environment": {**made[0]["environment"], "engine": {"name": "flink"}}}
    mine = tmp_path / "headline.jsonl"
    mine.write_text(json.dumps(flink) + "\n" + json.dumps(spark) + "\n")
    assert take_in([mine], folder) == [folder / "engines" / "headline.jsonl"]
    assert len(stored_in(folder)) == len(made), "no figure of the suite's own tables is from it"
    written = write.publish(folder).files
    assert folder / "tables" / "engines.md" in written
    (shown,) = read((folder / "data.js").read_text())["engines"]
    assert [row["engine"] for row in shown["rows"]] == ["Flink", "Spark, our sink"]
    assert shown["rows"][0]["commands"] == [flink["reproduce"]]
    assert shown["files"] == ["engines/headline.jsonl"]
    assert [row["behind"] for row in shown["rows"]] == [False, False]
    assert [each.partition(",")[0] for each in shown["headings"]][:4] == [
        "CPU per event", "p99 at 2", "rows lost", "rows duplicated"
    ]  # fmt: skip
    (line,) = engines.lines([flink])
    assert shown["rows"][0]["figures"][4] == line.figures[0], "events/s"
    assert sorted(shown["rows"][0]["figures"]) == sorted(line.figures)
    assert any(note.startswith("†: no price.") for note in shown["notes"])


def test_a_run_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path / "results", made := some())
    for name, series in (("runs.jsonl", "cost-1"), ("engines.jsonl", "headline-1")):
        (tmp_path / name).write_text(json.dumps({**made[0], "run": "ob-once", "series": series}) + "\n")
    both = [tmp_path / "runs.jsonl", tmp_path / "engines.jsonl"]
    with pytest.raises(UserError, match="would count twice"):
        take_in(both, folder)
    take_in(both[:1], folder)
    with pytest.raises(UserError, match=r"already in .*runs/runs\.jsonl"):
        take_in(both[1:], folder)
    assert not (folder / "engines").exists()


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.jsonl").write_text(json.dumps({**some()[0], "run": f"ob-{number}"}) + "\n")
    with pytest.raises(UserError, match="have the same name"):
        take_in([tmp_path / "a" / "mine.jsonl", tmp_path / "b" / "mine.jsonl"], tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_folder_gives_its_series_of_engines_too(tmp_path: Path) -> None:
    mine, made = tmp_path / "mine", some()
    (mine / "engines").mkdir(parents=True)
    (mine / "engines" / "e.jsonl").write_text(json.dumps({**made[0], "run": "ob-e", "series": "headline-1"}) + "\n")
    sample_reports.write(mine, made)
    taken = take_in([mine], tmp_path / "results")
    assert tmp_path / "results" / "engines" / "e.jsonl" in taken
    assert len(taken) > 1


def test_a_page_without_other_engines_has_no_table_of_them(tmp_path: Path) -> None:
    folder = sample_reports.write(tmp_path, some())
    assert folder / "tables" / "engines.md" not in write.publish(folder).files
    assert read((folder / "data.js").read_text())["engines"] == []


def test_publish_command_adds_given_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert len(read(Path("results/data.js").read_text())["runs"]["configuration"]) == len(some()) + 1


def test_csv_with_publish_is_refused() -> None:
    with pytest.raises(UserError, match="--csv has no effect with --publish"):
        CliRunner().invoke(cli, ["table", "--publish", "--csv"], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize("in_git", [True, False])
def test_publishing_into_a_clone_prints_how_to_undo_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_git: bool
) -> None:
    sample_reports.write(tmp_path / "results", some())
    if in_git:
        (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["table", "--publish"])
    assert done.exit_code == 0
    assert ("`git checkout results && git clean -f results`" in done.stderr) is in_git
    again = CliRunner().invoke(cli, ["table", "--publish"])
    assert (again.stdout, again.stderr) == (done.stdout, ""), "nothing has changed, so there is nothing to undo"
    Path("results/tables/sustained.md").write_text("of an earlier publication")
    deleted = CliRunner().invoke(cli, ["table", "--publish"])
    assert ("git checkout" in deleted.stderr) is in_git
    assert not Path("results/tables/sustained.md").exists()


def test_page_has_the_batches_in_turns_with_their_file_and_command() -> None:
    (shown,) = data_of(stored(some()), series=[batch_series("batches-1", [1.1] * 6)])["flat_out"]
    assert shown["files"] == [["batches/batches-1.jsonl", "oncebench batches"]]
    assert [row[:3] for row in shown["rows"]] == [
        ["kafka", "at-least-once", "acknowledged"], ["kafka", "exactly-once", "two-phase"],
    ]  # fmt: skip
    assert shown["rows"][1][3] == "1.100 (1.100 to 1.100)"
