"""The published page in a real browser: it draws, filters, links and is safe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from oncebench.audit.anomalies import CATALOGUE, TERMS, terms_of
from oncebench.site.write import publish
from tests import sample_reports
from tests.browser import Page, installed
from tests.results_page import chip, click, focused, reports, rows
from tests.unit.report.test_sweep_selection import series, swept

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium here: apt-get install chromium")
# The contrast of text with its background that WCAG 2 (AA) requires.
LEAST_CONTRAST = 4.5


def test_every_part_is_drawn_and_only_the_data_is_requested(page: Page, address: str) -> None:
    page.settle()
    assert page.complaints == []
    assert page.requests == [address, address.replace("index.html", "data.js")]
    parts = (
        "answer",
        "headline",
        "headline-chart",
        "findings",
        "filters",
        "matrix",
        "costs",
        "latencies",
        "timelines",
        "recoveries",
        "kill-points",
        "all-runs",
        "on-purpose",
        "facts",
    )
    empty = [part for part in parts if not page.run(f"document.getElementById('{part}').childElementCount")]
    assert empty == []
    assert page.run("document.querySelectorAll('.nothing').length") == 0


def refused(page: Page) -> str:
    return " ".join(text for text in page.complaints if "Content Security Policy" in text)


def test_policy_refuses_requests_of_scripts(page: Page) -> None:
    page.run("fetch('https://example.org/').catch(() => null)")
    page.run("document.body.append(Object.assign(new Image(), {src: 'https://example.org/x.png'}))")
    page.run("document.body.append(Object.assign(document.createElement('script'), {src: 'other.js'}))")
    page.until("three refusals", lambda: all(each in refused(page) for each in ("org/'", "x.png", "other.js")))
    assert len(page.requests) == 2


def test_hostile_strings_stay_text(page: Page) -> None:
    assert sample_reports.HOSTILE in page.run("document.getElementById('facts').textContent")
    page.run(
        "document.getElementById('find').value = 'verdict'; history.replaceState(null, '', '#find=unknown&open=kills')"
    )
    page.run("dispatchEvent(new HashChangeEvent('hashchange'))")
    assert sample_reports.HOSTILE in page.run("document.getElementById('runs-table').textContent")
    click(page, "td.unknown button")
    page.wait("document.getElementById('dialog').open")
    assert sample_reports.HOSTILE in page.run("document.getElementById('dialog').textContent")
    assert page.run("document.title").startswith("oncebench")
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.complaints == []


def test_filters_apply_to_every_part_and_are_in_the_address(page: Page) -> None:
    everything = len(rows(page, "matrix"))
    click(page, chip("sinks", "kafka"))
    click(page, chip("guarantees", "exactly-once"))
    assert page.run("location.hash") == "#sinks=kafka&guarantees=exactly-once"
    assert page.run(f"document.querySelector('{chip('sinks', 'kafka')}').ariaPressed") == "true"
    assert page.run(f"document.querySelector('{chip('sinks', 'all')}').ariaPressed") == "false"
    for part in ("matrix", "runs-table", "kill-points"):
        assert {tuple(row.split("\n")[:2]) for row in rows(page, part)} == {("kafka", "exactly-once")}, part
    assert 0 < len(rows(page, "matrix")) < everything
    assert page.run("document.querySelectorAll('#costs table').length") == 2  # with a trigger interval, and without
    click(page, chip("sinks", "all"))
    click(page, chip("guarantees", "all"))
    assert page.run("location.hash") == ""
    assert len(rows(page, "matrix")) == everything


def test_faults_filter_only_what_the_page_names(page: Page) -> None:
    parts = ("matrix", "recoveries", "runs-table", "kill-points", "timelines", "costs")
    text = "document.getElementById('{}').textContent".format
    before = {part: page.run(text(part)) for part in parts}
    click(page, chip("families", "kills"))
    assert [part for part in parts if page.run(text(part)) != before[part]] == ["matrix", "recoveries"]
    assert "Faults apply to the matrix and to the recovery tables." in page.run(
        "document.querySelector('#choice .hint').innerText"
    )


def test_the_chosen_metric_has_its_meaning(page: Page) -> None:
    click(page, chip("metric", "batch_ms"))
    assert (
        page.run("document.querySelector('#metric-buttons .hint').innerText") == "batch ms: the median time of a batch."
    )


def test_address_restores_the_selection_and_bad_values_are_ignored(shared: Page, address: str) -> None:
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
    assert {row.split("\n")[0] for row in rows(shared, "matrix")} == {"delta", "kafka"}


def test_changed_address_changes_the_open_page(page: Page) -> None:
    page.run("location.hash = '#sinks=delta'")
    page.wait("document.querySelector('.chip[data-value=delta]').ariaPressed === 'true'")
    assert {row.split("\n")[0] for row in rows(page, "matrix")} == {"delta"}


def test_empty_cell_is_not_applicable_or_not_run(page: Page) -> None:
    page.run("location.hash = '#families=broker,timeout&open=broker'")
    page.wait("document.querySelector('button.open[data-family=broker]')?.ariaExpanded === 'true'")

    def empty(row: str) -> dict[str, str]:
        """The empty cells of a row by column."""
        lines = page.run(
            "[...document.querySelectorAll('#matrix thead tr:nth-child(2), #matrix tbody tr')].map((row) => "
            "[row.innerText, ...[...row.querySelectorAll('th.fault, td')].map((cell) => cell.innerText)])"
        )
        head, cells = lines[0][1:], next(line[1:] for line in lines[1:] if " ".join(line[0].split()).startswith(row))
        both = zip(("".join(name.split()) for name in head), cells, strict=True)
        return {name: text for name, text in both if text in ("n/a", "not run")}

    no_transaction = {"after-preparehijack": "n/a", "after-decisionhijack": "n/a"}
    assert empty("delta exactly-once idempotent") == {**no_transaction, "2faults": "n/a"}
    assert empty("kafka exactly-once two-phase") == {}
    page.run("location.hash = '#sinks=delta&families=kills,healthy&open=kills'")
    page.wait("document.querySelector('button.open[data-family=kills]')?.ariaExpanded === 'true'")
    key = page.run("document.getElementById('matrix-key').innerText")
    assert "n/a: this fault cannot occur in this configuration" in key
    assert "not run: it can occur, and no run has it" in key


def test_cell_opens_its_runs_and_focus_returns(page: Page) -> None:
    click(page, "#open-all")
    page.run("document.querySelector('#matrix td.broken button').focus()")
    label = focused(page, "ariaLabel")
    assert "broken, DUP" in label or "broken, LOSS" in label
    page.press("Enter")
    page.wait("document.getElementById('dialog').open")
    text = page.run("document.getElementById('dialog').innerText")
    assert "oncebench run --sink" in text
    assert "faults-20260101-010000.jsonl line " in text
    code = "DUP" if "broken, DUP" in label else "LOSS"
    lines = (
        "[...document.querySelectorAll('#dialog dl > div')].map((line) => [...line.children].map((e) => e.innerText))"
    )
    entries, rule = dict(page.run(lines)), CATALOGUE[code].rule
    assert entries[code] == f"{CATALOGUE[code].means}: {rule}"
    assert entries.items() >= {term: TERMS[term].replace("`", "") for term in terms_of(rule)}.items()
    assert page.run("document.querySelector('#dialog a').getAttribute('href')") == "runs/faults-20260101-010000.jsonl"
    page.press("Escape")
    page.wait("!document.getElementById('dialog').open")
    page.wait(f"document.activeElement.ariaLabel === {json.dumps(label)}")


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_page_never_scrolls_sideways(shared: Page, address: str, width: int) -> None:
    for chosen in ("", "#open=kills,pairs,lives"):
        shared.open(address + chosen, width, 844)
        shared.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert shared.run("document.documentElement.scrollWidth") <= width
        assert shared.run(_SCALED) == []
        assert shared.run("innerWidth") == width  # a phone zooms out when something is too wide


def test_first_column_stays_visible_while_a_table_scrolls(shared: Page, address: str) -> None:
    shared.open(address + "#open=kills", 390, 844)
    shared.run("document.querySelector('#matrix .box').scrollLeft = 500")
    left = "Math.round(document.querySelector('#matrix tbody th').getBoundingClientRect().left - " \
           "document.querySelector('#matrix .box').getBoundingClientRect().left)"  # fmt: skip
    assert shared.run("document.querySelector('#matrix .box').scrollLeft") == 500
    assert abs(shared.run(left)) <= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_its_background(shared: Page, address: str, scheme: str) -> None:
    shared.open(address + "#open=kills", media={"prefers-color-scheme": scheme})
    shared.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    faint = shared.run(_FAINT)
    assert faint == []
    backs = shared.run("getComputedStyle(document.body).backgroundColor")
    assert backs == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")


def test_plots_have_name_description_and_numbers(page: Page) -> None:
    undescribed = page.run(
        "[...document.querySelectorAll('main svg')].filter((each) => each.getAttribute('aria-hidden') !== 'true')"
        ".filter((each) => each.getAttribute('role') !== 'img' || each.getAttribute('aria-labelledby').split(' ')"
        ".some((id) => !document.getElementById(id).textContent)).length"
    )
    assert undescribed == 0
    assert page.run(
        "[...document.querySelectorAll('main figure')].every((each) => each.querySelector('details table'))"
    )
    assert page.run("document.querySelectorAll('main figure').length") >= 5


def test_tables_have_captions_and_scopes(page: Page) -> None:
    assert page.run("[...document.querySelectorAll('table')].every((each) => each.caption && each.caption.textContent)")
    assert page.run("[...document.querySelectorAll('th')].every((each) => each.scope)")
    assert page.run("[...document.querySelectorAll('h1, h2')].map((each) => each.tagName).join('')").startswith(
        "H1H2H2"
    )
    assert page.run("['header', 'nav', 'main', 'footer'].every((name) => document.querySelector(name))")


def test_selected_metric_is_displayed(page: Page) -> None:
    before = page.run("document.getElementById('costs').innerText")
    click(page, chip("metric", "batch_ms"))
    after = page.run("document.getElementById('costs').innerText")
    assert before != after
    assert page.run("location.hash") == "#metric=batch_ms"
    assert focused(page, "dataset.value") == "batch_ms"


def test_sweeps_are_closed_in_order_and_stay_open_when_redrawn(shared: Page, tmp_path: Path) -> None:
    made = [*series("full"), *swept("t", "trigger_ms", 30000, 5000, 100), *series("x", warmup_s=3.0)]
    shared.open(publish(sample_reports.write(tmp_path, made)).files[0].as_uri())
    for part, what in (("costs", "caption"), ("latencies", "figcaption")):
        titles = shared.run(
            f"[...document.querySelectorAll('#{part} {what}')].filter((each) => !each.closest('figure details'))"
            ".map((each) => [each.textContent, Boolean(each.closest('details.sweep'))])"
        )
        assert [within for _, within in titles] == [False, True, True, True, True], part
        found = [
            next((ms for ms in ("100", "5,000", "30,000") if text.endswith(f"trigger {ms} ms")), "")
            for text, _ in titles
        ]
        assert found == ["", "100", "5,000", "30,000", ""], part
        summaries = f"[...document.querySelectorAll('#{part} details.sweep > summary')].map((each) => each.textContent)"
        assert shared.run(summaries) == ["Sweep: trigger ms, 3 settings", "Other settings, 1 setting"]
        assert shared.run(f"document.querySelectorAll('#{part} details.sweep[open]').length") == 0
    shared.run(
        "new Promise((done) => { const sweep = document.querySelector('#costs details.sweep');"
        "sweep.addEventListener('toggle', () => done()); sweep.querySelector('summary').click(); })"
    )
    click(shared, chip("metric", "batch_ms"))
    assert shared.run("document.querySelectorAll('#costs details.sweep[open]').length") == 1
    assert shared.complaints == []


def test_single_rounds_have_figures_and_no_ratio(shared: Page, tmp_path: Path) -> None:
    shared.open(publish(sample_reports.write(tmp_path, series("full", rounds=1))).files[0].as_uri())
    costs, headline, chart = (
        shared.run(f"document.getElementById('{part}').textContent") for part in ("costs", "headline", "headline-chart")
    )
    assert "; fewer than two rounds with at-least-once acknowledged, so no ratio." in costs
    assert "no ratio" in headline and "no ratio" in chart
    assert "single rounds of equal cells" in shared.run("document.getElementById('cost').textContent")
    assert shared.complaints == []


def test_selected_run_has_its_timeline_and_faults_drawn(page: Page) -> None:
    chosen = page.run("(() => { const it = document.getElementById('timeline-choice');"
                      "it.value = [...it.options].find((each) => each.text.includes('broker')).value;"
                      "it.dispatchEvent(new Event('change')); return it.value; })()")  # fmt: skip
    assert page.run("location.hash") == f"#timeline={chosen}"
    assert re.fullmatch(r"ob-[0-9a-z-]+", chosen)  # the run's own name, whatever is published next
    faults = page.run(f"ONCEBENCH.timelines.find(({{run}}) => ONCEBENCH.runs.id[run] === '{chosen}').faults.length")
    assert page.run("document.querySelectorAll('#timelines .fault-line').length") == faults > 0
    assert page.run("document.querySelectorAll('#timelines .outage').length") == faults + 1  # and one in the legend


def test_links_have_the_names_of_their_headings(page: Page) -> None:
    links = page.run("[...document.querySelectorAll('#parts a')].map((each) => [each.hash.slice(1), each.innerText])")
    headings = page.run(
        "[...document.querySelectorAll('main > section')].map((each) => [each.id, each.querySelector('h2').innerText])"
    )
    assert links == [heading for heading in headings if heading[0] != "choice"]
    assert [name for name, _ in links][0::8] == ["correctness", "about"]  # results first, their origin last


def test_runs_broken_on_purpose_are_listed_apart(page: Page) -> None:
    for _ in range(page.run("ONCEBENCH.runs.seed.length") // 200 + 1):
        page.run("document.querySelector('#runs-table > button')?.click()")
    for part in ("matrix", "runs", "headline"):
        assert "broken-kafka" not in page.run(f"document.getElementById('{part}').innerText"), part
    apart = rows(page, "purpose")
    assert apart
    assert all(row.startswith("broken-kafka") and "broken on purpose: " in row for row in apart)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_answer_and_table_fit_the_first_screen(shared: Page, address: str, width: int, height: int) -> None:
    shared.open(address, width, height)
    bottom = "Math.round(document.getElementById('{}').getBoundingClientRect().bottom)"
    for part in ("subject", "answer", "headline", *(["headline-chart"] if width == 1280 else [])):
        assert 0 < shared.run(bottom.format(part)) <= height, part


def test_closed_matrix_fits_the_width_of_a_desktop(shared: Page, address: str) -> None:
    shared.open(address, 1280, 800)
    assert shared.run("document.querySelector('#matrix .box').className") == "box fits"


def test_page_without_its_data_reports_it(shared: Page, address: str, tmp_path: Path) -> None:
    alone = tmp_path / "index.html"
    alone.write_text(Path(address.removeprefix("file://")).read_text())
    shared.open(alone.as_uri())
    assert "no data.js next to this page" in shared.run("document.body.innerText")


def test_older_reports_draw_a_page(shared: Page, tmp_path: Path) -> None:
    made = [sample_reports.older(each) for each in reports()]
    shared.open(publish(sample_reports.write(tmp_path, made)).files[0].as_uri())
    shared.settle()
    assert shared.complaints == []
    assert "has a timeline" in shared.run("document.getElementById('timelines').innerText")


# Plots that are not drawn at their own size, so their text would be too small or too large.
_SCALED = """[...document.querySelectorAll('main svg')].filter((each) => each.getClientRects().length)
  .map((each) => [Math.round(each.getBoundingClientRect().width), Number(each.getAttribute('width'))])
  .filter(([is, was]) => is !== was)"""

# Each kind of text whose contrast with the nearest background colour is too low.
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
