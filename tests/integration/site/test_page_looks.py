"""The published page as the eye sees it.

Nothing is cut, too small, drawn without a figure, or distinguished by colour alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebench.site.write import publish
from tests import sample_reports
from tests.browser import Page, installed
from tests.results_page import chip, click, focused
from tests.unit.report.test_sweep_selection import series

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium here: apt-get install chromium")


# The page changes its form at 359, 400, 640, 760 and 1080 pixels. These widths leave each form little room.
TIGHT = [320, 360, 412, 641, 768, 1280]
OTHERS = [340, 375, 390, 480, 700, 820, 900, 960, 1024]


@pytest.mark.parametrize("width", [*TIGHT, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)])
def test_table_and_chart_of_the_first_screen_are_cut_at_no_width(shared: Page, address: str, width: int) -> None:
    shared.open(address, width, 800)
    cut = (
        "[...document.querySelectorAll('.headline th, .headline td')].filter((each) => each.getClientRects().length)"
        ".filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)"
    )
    assert shared.run(cut) == []
    boxes = "[...document.querySelectorAll('#headline .box')].map((each) => each.scrollWidth - each.clientWidth)"
    assert shared.run(boxes) == [0]
    outside = (
        "(() => { const right = document.querySelector('#headline-chart figure > svg').getBoundingClientRect().right;"
        "return [...document.querySelectorAll('#headline-chart figure > svg text')]"
        ".filter((each) => each.getBoundingClientRect().right > right + 1).map((each) => each.textContent); })()"
    )
    assert shared.run(outside) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_no_text_is_smaller_than_eleven_pixels(shared: Page, address: str, width: int) -> None:
    shared.open(address + "#open=kills", width, 844)
    shared.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert shared.run(_SMALL) == []


def test_a_metric_that_was_not_measured_has_no_table_and_no_baseline(page: Page) -> None:
    click(page, chip("metric", "cpu_s"))  # the reports have it with a trigger interval only
    tables = "[...document.querySelectorAll('#costs table')]"
    assert page.run(f"{tables}.every((each) => each.closest('details[open]'))"), "the group that has it is open"
    rows = f"{tables}.flatMap((each) => [...each.tBodies[0].rows])"
    assert page.run(f"{rows}.filter((row) => row.cells[3].textContent === '-' && row.querySelector('.mark'))") == []
    assert page.run(f"{rows}.filter((row) => row.querySelector('.mark')).length") > 0
    assert "CPU s/M not measured: delta (machine A)" in page.run("document.getElementById('costs').innerText")


def test_clear_differences_in_a_closed_group_stand_outside_it(shared: Page, tmp_path: Path) -> None:
    slow = [
        {**each, "latency_ms": {**each["latency_ms"],
                                "p99": 600.0 if each["cell"]["guarantee"] == "exactly-once" else 500.0}}
        for each in series("x", warmup_s=3.0)
    ]  # fmt: skip
    shared.open(publish(sample_reports.write(tmp_path, [*series("full"), *slow])).files[0].as_uri())
    assert shared.run("document.querySelectorAll('#costs details.sweep[open]').length") == 0
    assert "Clear differences in these: kafka. warmup 3 s: exactly-once two-phase ↑ 1.20" in shared.run(
        "document.getElementById('costs').innerText"
    )


def test_lines_of_the_latency_plot_differ_in_shape_and_dash(page: Page) -> None:
    keys = "[...document.querySelectorAll('#latencies .key')].sort((a, b) => b.children.length - a.children.length)"
    kinds = page.run(
        f"[...{keys}[0].querySelectorAll('svg')].map((each) => "
        "[each.querySelector('.curve').getAttribute('class'), each.querySelector('.mark').tagName])"
    )
    assert len({kind.split()[-1] for kind, _ in kinds}) == len(kinds) > 2, "a dash for each line"
    shapes = {"at-most-once": "path", "at-least-once": "rect", "exactly-once": "circle"}
    assert [tag for _, tag in kinds] == [shapes[kind.split()[1]] for kind, _ in kinds]


def test_on_a_phone_a_dialog_shows_its_commands(shared: Page, address: str) -> None:
    shared.open(address, 390, 844)
    click(shared, "#headline .link")
    shared.wait("document.getElementById('dialog').open")
    right = (
        "Math.max(...[...document.querySelectorAll('#dialog .command')].map((e) => e.getBoundingClientRect().right))"
    )
    assert 0 < shared.run(right) <= 390
    assert shared.run("document.querySelector('#dialog td').dataset.label") == "guarantee, variant"


def test_only_boxes_that_scroll_are_tab_stops(shared: Page, address: str) -> None:
    for width in (390, 1280):
        shared.open(address, width, 844)
        boxes = (
            "[...document.querySelectorAll('.box')].filter((each) => each.clientWidth)"
            ".map((each) => [each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1,"
            "each.tabIndex === 0 && each.getAttribute('role') === 'region'])"
        )
        found = shared.run(boxes)
        assert [scrolls for scrolls, _ in found] == [stops for _, stops in found]
        assert {scrolls for scrolls, _ in found} == {True, False}


def test_a_run_leads_to_its_timeline(page: Page) -> None:
    page.run("history.replaceState(null, '', '#find=kill'); dispatchEvent(new HashChangeEvent('hashchange'))")
    click(page, "#runs-table button.link[aria-label^='timeline of ']")
    assert page.run("location.hash").startswith("#timeline=")
    assert focused(page, "id") == "timeline"


def test_a_search_without_a_match_has_a_sentence(shared: Page, address: str) -> None:
    shared.open(address + "#find=zzz")
    assert shared.run("document.getElementById('runs-table').innerText").startswith("No run matches")


# Each kind of text that is too small.
_SMALL = """(() => {
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.getClientRects().length) continue;
    const size = parseFloat(getComputedStyle(node).fontSize);
    if (size < 11) found.add(`${node.tagName} ${node.getAttribute('class')} ${size}`);
  }
  return [...found];
})()"""
