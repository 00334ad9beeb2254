"""The page of a recording in headless Chromium: from moment to moment, on either axis."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver import ActionChains, Keys

import gmlake
import scenarios
from browsing import Browser, Picture
from gmlake.pictures import in_notebook, render_page
from recording import BASE, block, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def _saved(folder: Path, data: dict[str, Any]) -> Path:
    (folder / "scenario.pickle").write_bytes(pickle.dumps(data, protocol=4))
    return folder / "scenario.pickle"


def opened(browser: Browser, folder: Path, data: dict[str, Any]) -> Browser:
    browser.open(render_page(gmlake.load(_saved(folder, data)).report()), folder)
    return browser


@pytest.fixture
def fragmented(browser: Browser, tmp_path: Path) -> Browser:
    return opened(browser, tmp_path, scenarios.fragmented())


@pytest.fixture
def peaked(browser: Browser, tmp_path: Path) -> Browser:
    return opened(browser, tmp_path, scenarios.peaked())


def said(page: Browser) -> str:
    text: str = page.find("section.moments .told").text
    return text


def used_bytes(page: Browser) -> int:
    """Return what the map draws as used."""
    total: int = Picture(page, "addressmap").ask(
        """(() => {
            const { what, right, left, first, end } = plot.part("base").source.data;
            return [...what.keys()]
                .filter((row) => first[row] <= plot.moment && plot.moment < end[row])
                .filter((row) => what[row].startsWith("used"))
                .reduce((sum, row) => sum + right[row] - left[row], 0);
        })()"""
    )
    return total


def slide(page: Browser, *keys: str) -> None:
    page.find(".mover input").send_keys(*keys)


def cursor(page: Browser, kind: str) -> float:
    place: float = Picture(page, kind).ask("plot.cursor")
    return place


def test_the_slider_takes_headline_map_and_tables_along(fragmented: Browser) -> None:
    assert said(fragmented).startswith(
        "Refused: 500 MiB, asked for at train.py:31 in step(): 1.09 GiB"
    )
    assert used_bytes(fragmented) == 80 * MIB
    assert cursor(fragmented, "timeline") == cursor(fragmented, "packing") == 32
    slide(fragmented, *16 * [Keys.ARROW_LEFT])
    assert said(fragmented).startswith("At event 16 of 45, 16 ms in: 140 MiB let go")
    assert used_bytes(fragmented) == 1200 * MIB
    assert cursor(fragmented, "timeline") == 16
    titles = [one.text for one in fragmented.find_all("h2")]
    assert {"addresses after event 16", "live after event 16"} < set(titles)
    rows = [row.text for row in fragmented.find_all("section.blocks tbody tr")]
    assert [row.split()[:2] for row in rows if row] == [["80.0", "MiB"], ["1.09", "GiB"]]
    assert fragmented.find_all("section.stranded tbody tr") == []
    fragmented.find(".mover button[data-go='0']").click()
    assert said(fragmented).startswith("Refused: 500 MiB")
    assert used_bytes(fragmented) == 80 * MIB
    row = fragmented.find("section.moments tbody tr").text
    assert row == "1.09 GiB 8 model.py:12 in remember() 80.0 MiB 4 event 2, 2 ms in"
    assert fragmented.complaints() == []


def test_the_line_on_top_leads_to_a_device(browser: Browser, tmp_path: Path) -> None:
    """On a page of its own, and in the frame of a notebook, which has no address."""
    data = scenarios.fragmented()
    data["device_traces"].append(scenarios.peaked()["device_traces"][0])
    made = gmlake.load(_saved(tmp_path, data)).report()
    frame = f"<!DOCTYPE html><html data-ready=true><body>{in_notebook(made)}</body></html>"
    for page in (render_page(made), frame):
        browser.open(page, tmp_path)
        if page is frame:
            browser.driver.switch_to.frame(browser.find("iframe"))
            browser.wait(lambda: browser.run("return document.documentElement.dataset.ready"))
        first, second = browser.find_all("nav a")
        assert first.text.startswith("Device 0: 1.17 GiB live at the peak, 1.17 GiB held, one req")
        assert second.text.startswith("Device 1: ")
        second.click()
        place = "return document.getElementById('run2').getBoundingClientRect().top"
        assert 0 <= browser.run(place) < 100
        browser.driver.switch_to.default_content()
        assert browser.complaints() == []


def test_arrow_keys_move_it_where_nothing_else_has_them(fragmented: Browser) -> None:
    ActionChains(fragmented.driver).send_keys(Keys.ARROW_RIGHT).perform()
    assert said(fragmented).startswith("At event 33 of 45")
    slide(fragmented, Keys.HOME)
    assert said(fragmented).startswith("Before the first event.")
    slide(fragmented, Keys.ARROW_LEFT)
    assert said(fragmented).startswith("Before the first event.")
    assert used_bytes(fragmented) == 0


def test_a_click_on_a_picture_goes_to_the_moment(fragmented: Browser) -> None:
    Picture(fragmented, "timeline").point_at(10.1, 100 * MIB).click().perform()
    fragmented.wait(lambda: said(fragmented).startswith("At event 10 of 45"))


def test_a_free_piece_says_what_keeps_it_from_growing(fragmented: Browser) -> None:
    picture = Picture(fragmented, "addressmap")
    x, y = picture.middle("base", 0)
    hovered = picture.read_at(60 * MIB, y)
    assert "base: free" in hovered
    assert "before it: the edge of what is held" in hovered
    assert "behind it: 20.0 MiB asked for at model.py:12 in remember(), since event 2" in hovered
    assert x > 0


def test_the_map_says_which_pool_a_piece_is_in(browser: Browser, tmp_path: Path) -> None:
    frames = [{"name": "step", "filename": "/home/me/train.py", "line": 7}]
    used = {**block(BASE, 60 * MIB, 60 * MIB), "frames": frames}
    parts = [used, block(BASE + 60 * MIB, 40 * MIB)]
    part = segment(BASE, 100 * MIB, parts, segment_pool_id=(0, 2))
    opened(browser, tmp_path, snapshot([], [part]))
    picture = Picture(browser, "addressmap")
    named = "in MemPool (0, 2)"
    what = picture.ask('plot.part("base").source.data.what')
    assert set(what) == {f"used, train.py:7 in step(), {named}", f"free, {named}"}
    said = picture.read_at(*picture.middle("base", what.index(f"free, {named}")))
    assert f"base: free, {named}" in said
    legend = browser.find("section.addressmap .legend").text
    assert f"free {named}" in legend.splitlines()
    row = browser.find("section.blocks tbody tr")
    row.find_element("css selector", "summary").click()
    assert named in row.text
    assert browser.complaints() == []


def test_the_startup_is_folded_until_it_is_asked_for(peaked: Browser) -> None:
    timeline = Picture(peaked, "timeline")
    assert timeline.x_range() == (183, 194)
    assert Picture(peaked, "packing").x_range() == (183, 194)
    peaked.find("button[data-startup]").click()
    assert timeline.x_range() == (0, 194)
    peaked.find("button[data-startup]").click()
    assert timeline.x_range() == (183, 194)


def test_events_become_times_and_back(peaked: Browser) -> None:
    timeline = Picture(peaked, "timeline")
    peaked.find("button[data-axis=times]").click()
    assert timeline.x_range() == pytest.approx((0.182, 0.191))
    assert Picture(peaked, "packing").x_range() == pytest.approx((0.182, 0.191))
    assert cursor(peaked, "timeline") == pytest.approx(0.185)
    assert timeline.ask("plot.x.label") == "time"
    peaked.find("button[data-axis=events]").click()
    assert timeline.x_range() == (183, 194)
    assert cursor(peaked, "packing") == 186
    assert peaked.complaints() == []


def test_pictures_of_one_run_zoom_together(peaked: Browser) -> None:
    timeline, packing = Picture(peaked, "timeline"), Picture(peaked, "packing")
    timeline.box.send_keys("+")
    assert packing.x_range() == timeline.x_range() != (183, 194)
    packing.box.send_keys("0")
    assert timeline.x_range() == (183, 194)


def test_steps_are_named_where_there_is_room(peaked: Browser) -> None:
    names = '(plot.draw(), plot.part("names").shown)'
    timeline = Picture(peaked, "timeline")
    assert timeline.ask(names) == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    peaked.find("button[data-startup]").click()
    assert timeline.ask(names) == ["ProfilerStep#0"]


def test_a_file_without_times_has_one_axis(browser: Browser, tmp_path: Path) -> None:
    data = scenarios.leaking()
    for event in data["device_traces"][0]:
        del event["time_us"]
    page = opened(browser, tmp_path, data)
    assert not page.find("button[data-axis=times]").is_displayed()
    assert not page.find("button[data-startup]").is_displayed()
    slide(page, Keys.ARROW_LEFT)
    assert said(page).startswith("At event 22 of 24")
    assert page.complaints() == []


def test_without_times_a_folded_startup_can_still_be_shown(
    browser: Browser, tmp_path: Path
) -> None:
    seen = gmlake.load(_saved(tmp_path, scenarios.peaked()))
    seen[0].events["time_ns"] = 0
    browser.open(render_page(seen.report()), tmp_path)
    timeline = Picture(browser, "timeline")
    assert timeline.x_range() == (183, 194)
    browser.find("button[data-startup]").click()
    assert timeline.x_range() == (0, 194)
    assert not browser.find("button[data-axis=times]").is_displayed()


# ---- text that can be read

_CONTRASTS = """
const channel = (value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
};
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const over = ([r, g, b, alpha], below) =>
    [r, g, b].map((one, i) => one * alpha + below[i] * (1 - alpha));
const parsed = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    return found.length === 3 ? [...found, 1] : found;
};
const behind = (element) => {
    if (!element) { return [255, 255, 255]; }
    return over(parsed(getComputedStyle(element).backgroundColor), behind(element.parentElement));
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !element.getClientRects().length || element.closest("script, style, :disabled")) {
        continue;
    }
    const below = behind(element);
    const above = over(parsed(getComputedStyle(element).color), below);
    const [dark, bright] = [light(below), light(above)].sort((one, other) => one - other);
    found.push([text.slice(0, 40), (bright + 0.05) / (dark + 0.05)]);
}
return found;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(
    scheme: str, browser: Browser, tmp_path: Path
) -> None:
    """WCAG 2.1, success criterion 1.4.3: a contrast of at least 4.5."""
    browser.emulate(prefers_color_scheme=scheme)
    contrasts = opened(browser, tmp_path, scenarios.fragmented()).run(_CONTRASTS)
    assert len(contrasts) > 50
    assert [one for one in contrasts if one[1] < 4.5] == []
