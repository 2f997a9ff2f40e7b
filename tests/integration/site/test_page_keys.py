"""The published page by keyboard: every part is reachable, focus is visible."""

from __future__ import annotations

import pytest

from tests.browser import Page, installed
from tests.results_page import chip, click, focused, rows

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium here: apt-get install chromium")


def test_family_opens_and_its_heading_keeps_the_focus(page: Page) -> None:
    before = page.run("document.querySelectorAll('#matrix thead tr')[1].cells.length")
    page.run("document.querySelector('button.open[data-family=kills]').focus()")
    page.press("Enter")
    assert page.run("document.querySelectorAll('#matrix thead tr')[1].cells.length") == before + 8
    assert (focused(page, "dataset.family"), focused(page, "ariaExpanded")) == ("kills", "true")
    assert page.run("location.hash") == "#open=kills"


def test_arrow_keys_move_between_cells_and_matrix_is_one_stop(page: Page) -> None:
    assert page.run("document.querySelectorAll('#matrix .cell-button[tabindex=\"0\"]').length") == 1
    page.run("document.querySelector('#matrix .cell-button[tabindex=\"0\"]').focus()")
    start = focused(page, "ariaLabel")
    for key in ("ArrowRight", "ArrowDown", "End", "Home"):
        before = focused(page, "ariaLabel")
        page.press(key)
        assert focused(page, "ariaLabel") != before, key
    assert focused(page, "ariaLabel") != start
    assert page.run("document.querySelectorAll('#matrix .cell-button[tabindex=\"0\"]').length") == 1


def test_focused_cell_is_not_under_head_or_first_column(shared: Page, address: str) -> None:
    shared.open(address, width=600, height=500)
    shared.run("document.querySelectorAll('#matrix thead button').forEach((each) => each.click())")
    shared.run("document.querySelector('#matrix .cell-button[tabindex=\"0\"]').focus()")
    hidden = (
        "(() => { const at = document.activeElement, row = at.closest('tr');"
        "const cell = at.getBoundingClientRect(), head = row.closest('table').tHead.getBoundingClientRect();"
        "const first = row.querySelector('.stick').getBoundingClientRect();"
        "return cell.left < first.right - 1 || cell.top < head.bottom - 1; })()"
    )
    for key in [*["ArrowRight"] * 4, *["ArrowLeft"] * 3, *["ArrowDown"] * 6, *["ArrowUp"] * 4]:
        shared.press(key)
        shared.settle(0.05)
        assert not shared.run(hidden), key


def test_skip_link_keeps_the_selection(page: Page) -> None:
    click(page, chip("sinks", "kafka"))
    before = page.run("location.hash")
    click(page, ".skip")
    assert (page.run("location.hash"), focused(page, "id")) == (before, "correctness")
    assert "sinks=kafka" in before


def test_more_runs_appear_and_the_first_has_the_focus(page: Page) -> None:
    before = len(rows(page, "runs"))
    click(page, "#runs-table > button")
    assert len(rows(page, "runs")) > before
    at = "[...document.querySelectorAll('#runs tbody tr')].indexOf(document.activeElement.closest('tr'))"
    assert page.run(at) == before


@pytest.mark.slow
def test_tab_key_reaches_every_part_with_visible_focus(page: Page) -> None:
    visited: set[str] = set()
    invisible: list[str] = []
    count = page.run("document.querySelectorAll('a, button, select, input, summary, [tabindex=\"0\"]').length")
    for _ in range(count):
        page.press("Tab")
        focus = page.run(
            "(() => { const at = document.activeElement; const style = getComputedStyle(at);"
            "const part = at.closest('main > section');"
            "return [part ? part.id : '', style.outlineStyle, parseFloat(style.outlineWidth),"
            "at.outerHTML.slice(0, 80), at.tagName]; })()"
        )
        visited.add(focus[0])
        if focus[4] != "BODY" and (focus[1] == "none" or focus[2] < 2):  # the body has the focus after the last element
            invisible.append(focus[3])
    assert invisible == []
    sections = set(page.run("[...document.querySelectorAll('main > section')].map((each) => each.id)"))
    assert sections <= visited
