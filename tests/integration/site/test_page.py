"""The published page in a real browser: it draws, filters, links, and lets no report do anything to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.audit.anomalies import CATALOGUE, TERMS, terms_of
from oncebench.site.write import publish
from tests import sample_reports
from tests.browser import Page, installed
from tests.results_page import chip, click, focused, reports, rows
from tests.unit.report.test_sweep_selection import series, swept

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium here: apt-get install chromium")
# Where WCAG 2 wants text to be told from what is behind it (AA).
LEAST_CONTRAST = 4.5


def test_every_part_is_drawn_without_a_complaint_and_nothing_but_its_data_is_asked_for(
    page: Page, address: str
) -> None:
    page.settle()
    assert page.complaints == []
    assert page.requests == [address, address.replace("index.html", "data.js")]
    parts = (
        "chips",
        "matrix",
        "costs",
        "tradeoffs",
        "latencies",
        "timelines",
        "returns",
        "landed",
        "all-runs",
        "facts",
    )
    empty = [part for part in parts if not page.run(f"document.getElementById('{part}').childElementCount")]
    assert empty == []
    assert page.run("document.querySelectorAll('.nothing').length") == 0


def test_a_request_that_a_script_makes_is_refused_by_the_policy(page: Page) -> None:
    page.run("fetch('https://example.org/').catch(() => null)")
    page.run("document.body.append(Object.assign(new Image(), {src: 'https://example.org/x.png'}))")
    page.run("document.body.append(Object.assign(document.createElement('script'), {src: 'other.js'}))")
    page.settle(0.5)
    assert len(page.requests) == 2
    refused = " ".join(text for text in page.complaints if "Content Security Policy" in text)
    assert all(where in refused for where in ("https://example.org/'", "x.png", "other.js"))


def test_hostile_strings_are_text(page: Page) -> None:
    assert sample_reports.HOSTILE in page.run("document.getElementById('facts').textContent")
    page.run(
        "document.getElementById('find').value = 'verdict'; history.replaceState(null, '', '#find=unknown&open=kills')"
    )
    page.run("dispatchEvent(new HashChangeEvent('hashchange'))")
    assert sample_reports.HOSTILE in page.run("document.getElementById('runs-table').textContent")
    click(page, "td.unknown button")
    page.settle()
    assert sample_reports.HOSTILE in page.run("document.getElementById('dialog').textContent")
    assert page.run("document.title").startswith("oncebench")
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.complaints == []


def test_chips_filter_every_part_and_stand_in_the_address(page: Page) -> None:
    everything = len(rows(page, "matrix"))
    click(page, chip("sinks", "kafka"))
    click(page, chip("guarantees", "exactly-once"))
    assert page.run("location.hash") == "#sinks=kafka&guarantees=exactly-once"
    assert page.run(f"document.querySelector('{chip('sinks', 'kafka')}').ariaPressed") == "true"
    assert page.run(f"document.querySelector('{chip('sinks', 'all')}').ariaPressed") == "false"
    for part in ("matrix", "runs-table", "landed"):
        assert {tuple(row.split("\n")[:2]) for row in rows(page, part)} == {("kafka", "exactly-once")}, part
    assert 0 < len(rows(page, "matrix")) < everything
    assert page.run("document.querySelectorAll('#costs table').length") == 2  # with room between batches, and without
    click(page, chip("sinks", "all"))
    click(page, chip("guarantees", "all"))
    assert page.run("location.hash") == ""
    assert len(rows(page, "matrix")) == everything


def test_an_address_restores_what_was_chosen_and_a_strange_one_does_no_harm(shared: Page, address: str) -> None:
    chosen = "#sinks=delta&families=kills,broker&open=kills&metric=batch_ms&find=seed%3A1"
    shared.open(address + chosen)
    assert {row.split("\n")[0] for row in rows(shared, "matrix")} == {"delta"}
    assert shared.run("document.querySelectorAll('#matrix thead tr')[1].cells.length") == 10  # nine kills, and broker
    assert "batch ms" in shared.run("document.querySelector('#costs caption').textContent")
    assert shared.run("document.getElementById('find').value") == "seed:1"
    assert shared.run("location.hash") == chosen
    shared.open(address + "#sinks=nowhere,%3Cb%3E&metric=__proto__&timeline=x&open=&cell&&=&%E0%A4%A")
    shared.settle()
    assert shared.complaints == []
    assert {row.split("\n")[0] for row in rows(shared, "matrix")} == {"delta", "kafka", "broken-kafka"}


def test_the_address_of_a_view_changes_the_page_while_it_is_open(page: Page) -> None:
    page.run("location.hash = '#sinks=delta'")
    page.wait("document.querySelector('.chip[data-value=delta]').ariaPressed === 'true'")
    assert {row.split("\n")[0] for row in rows(page, "matrix")} == {"delta"}


def test_an_empty_cell_says_whether_a_run_could_be_there(page: Page) -> None:
    page.run("location.hash = '#families=broker,timeout&open=broker'")
    page.settle()

    def told(row: str) -> dict[str, str]:
        """What stands in the empty cells of a row, by their columns."""
        lines = page.run(
            "[...document.querySelectorAll('#matrix thead tr:nth-child(2), #matrix tbody tr')].map((row) => "
            "[row.innerText, ...[...row.querySelectorAll('th.fault, td')].map((cell) => cell.innerText)])"
        )
        head, cells = lines[0][1:], next(line[1:] for line in lines[1:] if " ".join(line[0].split()).startswith(row))
        both = zip(("".join(name.split()) for name in head), cells, strict=True)
        return {name: text for name, text in both if text in ("n/a", "-")}

    nothing_to_take = {"after-preparehijack": "n/a", "after-decisionhijack": "n/a"}
    assert told("delta exactly-once idempotent") == {**nothing_to_take, "2faults": "n/a"}
    assert told("kafka exactly-once two-phase") == {}
    broken = told("broken-kafka exactly-once no-fencing")
    assert (broken["mid-writekill-broker"], broken["after-decisionhijack"]) == ("-", "n/a")
    page.run("location.hash = '#families=broker'")
    page.settle()
    assert list(told("broken-kafka exactly-once no-fencing").values()) == ["-"]  # some of its faults could be run
    key = page.run("document.getElementById('matrix-key').innerText")
    assert "n/a: cannot be done to this row" in key
    assert "-: could be done, and no run is here" in key


def test_a_cell_leads_to_its_runs_their_lines_and_the_command_and_back(page: Page) -> None:
    click(page, "#open-all")
    page.run("document.querySelector('#matrix td.broken button').focus()")
    label = focused(page, "ariaLabel")
    assert "broken, DUP" in label or "broken, LOSS" in label
    page.press("Enter")
    page.wait("document.getElementById('dialog').open")
    told = page.run("document.getElementById('dialog').innerText")
    assert "oncebench run --sink" in told
    assert "faults-20260101-010000.jsonl line " in told
    code = "DUP" if "broken, DUP" in label else "LOSS"
    lines = (
        "[...document.querySelectorAll('#dialog dl > div')].map((line) => [...line.children].map((e) => e.innerText))"
    )
    shown, rule = dict(page.run(lines)), CATALOGUE[code].rule
    assert shown[code] == f"{CATALOGUE[code].means}: {rule}"
    assert shown.items() >= {term: TERMS[term] for term in terms_of(rule)}.items()
    assert page.run("document.querySelector('#dialog a').getAttribute('href')") == "runs/faults-20260101-010000.jsonl"
    page.press("Escape")
    page.wait("!document.getElementById('dialog').open")
    page.settle()
    assert focused(page, "ariaLabel") == label


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_width_makes_the_page_scroll_sideways(shared: Page, address: str, width: int) -> None:
    for chosen in ("", "#open=kills,pairs,lives"):
        shared.open(address + chosen, width, 844)
        shared.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert shared.run("document.documentElement.scrollWidth") <= width
        assert shared.run(_SCALED) == []
        assert shared.run("innerWidth") == width  # a phone zooms out where something is too wide


def test_first_columns_stay_in_sight_when_a_table_is_scrolled(shared: Page, address: str) -> None:
    shared.open(address + "#open=kills", 390, 844)
    shared.run("document.querySelector('#matrix .box').scrollLeft = 500")
    left = "Math.round(document.querySelector('#matrix tbody th').getBoundingClientRect().left - " \
           "document.querySelector('#matrix .box').getBoundingClientRect().left)"  # fmt: skip
    assert shared.run("document.querySelector('#matrix .box').scrollLeft") == 500
    assert abs(shared.run(left)) <= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_told_from_what_is_behind_it(shared: Page, address: str, scheme: str) -> None:
    shared.open(address + "#open=kills", media={"prefers-color-scheme": scheme})
    shared.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    faint = shared.run(_FAINT)
    assert faint == []
    backs = shared.run("getComputedStyle(document.body).backgroundColor")
    assert backs == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")


def test_plots_have_a_name_a_text_and_their_numbers(page: Page) -> None:
    untold = page.run(
        "[...document.querySelectorAll('main svg')].filter((each) => each.getAttribute('aria-hidden') !== 'true')"
        ".filter((each) => each.getAttribute('role') !== 'img' || each.getAttribute('aria-labelledby').split(' ')"
        ".some((id) => !document.getElementById(id).textContent)).length"
    )
    assert untold == 0
    assert page.run("[...document.querySelectorAll('figure')].every((each) => each.querySelector('details table'))")
    assert page.run("document.querySelectorAll('figure').length") >= 5


def test_tables_have_captions_and_scopes_and_headings_are_in_order(page: Page) -> None:
    assert page.run("[...document.querySelectorAll('table')].every((each) => each.caption && each.caption.textContent)")
    assert page.run("[...document.querySelectorAll('th')].every((each) => each.scope)")
    assert page.run("[...document.querySelectorAll('h1, h2')].map((each) => each.tagName).join('')").startswith(
        "H1H2H2"
    )
    assert page.run("['header', 'nav', 'main', 'footer'].every((name) => document.querySelector(name))")


def test_the_chosen_figure_is_the_one_that_is_shown(page: Page) -> None:
    before = page.run("document.getElementById('costs').innerText")
    click(page, chip("metric", "batch_ms"))
    after = page.run("document.getElementById('costs').innerText")
    assert before != after
    assert page.run("location.hash") == "#metric=batch_ms"
    assert focused(page, "dataset.value") == "batch_ms"


def test_what_was_swept_stands_behind_a_line_by_its_values_and_stays_open_when_drawn_anew(
    shared: Page, tmp_path: Path
) -> None:
    made = [*series("full"), *swept("t", "trigger_ms", 30000, 5000, 100), *series("x", warmup_s=3.0)]
    shared.open(publish(sample_reports.write(tmp_path, made))[0].as_uri())
    for part, what in (("costs", "caption"), ("latencies", "figcaption")):
        told = shared.run(
            f"[...document.querySelectorAll('#{part} {what}')].filter((each) => !each.closest('figure details'))"
            ".map((each) => [each.textContent, Boolean(each.closest('details.swept'))])"
        )
        assert [within for _, within in told] == [False, True, True, True, True], part
        found = [next((ms for ms in ("100", "5,000", "30,000") if f"trigger {ms} ms," in text), "") for text, _ in told]
        assert found == ["", "100", "5,000", "30,000", ""], part
        summaries = f"[...document.querySelectorAll('#{part} details.swept > summary')].map((each) => each.textContent)"
        assert shared.run(summaries) == ["Swept: trigger ms, 3 settings", "Other settings, 1 setting"]
        assert shared.run(f"document.querySelectorAll('#{part} details.swept[open]').length") == 0
    # A price is told where there is room, so the full comparison and a trigger of 100 ms have no plot there.
    plotted = "[...document.querySelectorAll('#tradeoffs figcaption')].map((each) => each.textContent)"
    assert [("5,000" in text, "30,000" in text) for text in shared.run(plotted)] == [(True, False), (False, True)]
    shared.run("document.querySelector('#costs details.swept > summary').click()")
    shared.settle()
    click(shared, chip("metric", "batch_ms"))
    assert shared.run("document.querySelectorAll('#costs details.swept[open]').length") == 1
    assert shared.complaints == []


def test_a_run_that_is_chosen_has_its_timeline_and_faults_drawn(page: Page) -> None:
    chosen = page.run("(() => { const it = document.getElementById('timeline-choice');"
                      "it.value = [...it.options].find((each) => each.text.includes('broker')).value;"
                      "it.dispatchEvent(new Event('change')); return it.value; })()")  # fmt: skip
    assert page.run("location.hash") == f"#timeline={chosen}"
    faults = page.run(f"ONCEBENCH.timelines.find((each) => each.run === {chosen}).faults.length")
    assert page.run("document.querySelectorAll('#timelines .fault-line').length") == faults > 0
    assert page.run("document.querySelectorAll('#timelines .outage').length") == faults + 1  # and the key's


def test_a_page_without_its_data_says_so(shared: Page, address: str, tmp_path: Path) -> None:
    alone = tmp_path / "index.html"
    alone.write_text(Path(address.removeprefix("file://")).read_text())
    shared.open(alone.as_uri())
    assert "no data.js beside this page" in shared.run("document.body.innerText")


def test_reports_of_before_draw_a_page_too(shared: Page, tmp_path: Path) -> None:
    made = [sample_reports.older(each) for each in reports()]
    shared.open(publish(sample_reports.write(tmp_path, made))[0].as_uri())
    shared.settle()
    assert shared.complaints == []
    assert "has a timeline" in shared.run("document.getElementById('timelines').innerText")


# Plots that are not drawn at the size that they were made for: their text would be too small to read, or too large.
_SCALED = """[...document.querySelectorAll('main svg')].filter((each) => each.getClientRects().length)
  .map((each) => [Math.round(each.getBoundingClientRect().width), Number(each.getAttribute('width'))])
  .filter(([is, was]) => is !== was)"""

# Text whose contrast with the nearest colour behind it is below what is wanted, each once.
_FAINT = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((each) => { const of = each / 255;
    return of <= 0.03928 ? of / 12.92 : ((of + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const behind = (node) => { for (let at = node; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour; } return [255, 255, 255]; };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const colour = parts(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(colour), light(behind(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < LEAST) found.add(`${node.tagName} ${node.getAttribute('class')} ${contrast.toFixed(2)}`);
  }
  return [...found];
})()""".replace("LEAST", str(LEAST_CONTRAST))
