"""Each picture in headless Chromium: drawn, zoomed, hovered, clicked, and reached by keyboard."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver import ActionChains, Keys

from browsing import Browser, Picture
from gmlake.pictures import in_notebook, render_page
from gmlake.pictures.figures import Report
from gmlake.snapshots import report_of
from gmlake.snapshots.whole import of_one_trace
from sample_report import GIB, HOSTILE, MIB, random_trace, report

if TYPE_CHECKING:
    from pathlib import Path

DRAWN = ("timeline", "addressmap", "packing")
ALL = (*DRAWN, "policies", "blocks")
MOST_CPU_SECONDS = 30  # of a page that takes about 1
# Counts the pictures that are drawn whenever the page notes a moment. What waits for a frame takes
# its turn among the page's own tasks: how busy the machine is does not change the order.
COUNT_DRAWN = """
window.requestAnimationFrame = (then) => setTimeout(() => then(performance.now()));
window.drawn = {};
performance.mark = (name) => {
    window.drawn[name] = document.querySelectorAll("[data-ready]:not(html)").length;
};
"""


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    browser.open(render_page(report()), tmp_path)
    return browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_picture_is_drawn_without_a_complaint_and_without_the_network(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    browser.emulate(prefers_color_scheme=scheme)
    browser.open(render_page(report()), tmp_path)
    assert browser.complaints() == []
    asked = [url for url in browser.requests() if not url.startswith(("data:", "blob:"))]
    assert asked == [(tmp_path / "page.html").as_uri()]
    for kind in ALL:
        assert browser.find(f"section.{kind} h2").text
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
    ink = Picture(browser, "timeline").ask("plot.colours.ink")
    assert ink == {"light": "#1c2128", "dark": "#e4e8ee"}[scheme]


@pytest.mark.parametrize("kind", DRAWN)
def test_buttons_zoom_and_move(page: Browser, kind: str) -> None:
    picture = Picture(page, kind)
    start, end = picture.x_range()
    picture.press("[data-act=in]")
    inner = picture.x_range()
    assert start < inner[0] < inner[1] < end
    picture.press("[data-act=right]")
    assert picture.x_range()[0] > inner[0]
    picture.press("[data-act=left]")
    assert picture.x_range() == pytest.approx(inner)
    picture.press("[data-act=out]")
    picture.press("[data-act=out]")
    assert picture.x_range() == pytest.approx((start, end))
    picture.press("[data-act=in]")
    picture.press("[data-act=reset]")
    assert picture.x_range() == pytest.approx((start, end))


@pytest.mark.parametrize("kind", DRAWN)
def test_keys_zoom_and_move(page: Browser, kind: str) -> None:
    picture = Picture(page, kind)
    start, end = picture.x_range()
    picture.box.send_keys("++")
    inner = picture.x_range()
    assert start < inner[0] < inner[1] < end
    picture.box.send_keys(Keys.ARROW_RIGHT)
    assert picture.x_range()[0] > inner[0]
    low = picture.y_range()[0]
    picture.box.send_keys(Keys.ARROW_UP)
    assert (picture.y_range()[0] > low) == (kind == "packing")
    picture.box.send_keys("0")
    assert picture.x_range() == pytest.approx((start, end))


def test_dragging_zooms_into_what_was_dragged_over(page: Browser) -> None:
    picture = Picture(page, "timeline")
    picture.point_at(3, 2 * GIB).click_and_hold().move_by_offset(200, 40).release().perform()
    start, end = picture.x_range()
    assert start == pytest.approx(3, abs=0.1)
    assert 3.5 < end < 11


def test_the_timeline_says_what_was_live_at_a_moment(page: Browser) -> None:
    said = Picture(page, "timeline").read_at(4.6, GIB)
    assert "parameter: 2.00 GiB" in said
    assert "optimizer state: 4.00 GiB" in said
    assert "reserved: 10.8 GiB" in said
    assert "temporary" not in said  # it is 0 throughout


def test_the_timeline_shows_refusals_in_words_and_as_a_mark(page: Browser) -> None:
    assert "Out of memory at 9.3 seconds: 1.50 GiB refused" in page.find("section.timeline").text
    said = Picture(page, "timeline").read_at(9.3, 11 * GIB)
    assert "out of memory: 1.50 GiB refused" in said


def test_a_key_of_the_legend_hides_its_layer(page: Browser) -> None:
    picture = Picture(page, "timeline")
    key = "button[data-name=layer0]"
    shown = 'plot.part("layer0").isShown'
    assert picture.ask(shown)
    picture.press(key)
    assert not picture.ask(shown)
    assert page.find(key).get_attribute("aria-pressed") == "false"
    picture.press(key)
    assert picture.ask(shown)


def test_the_address_map_says_what_lies_where(page: Browser) -> None:
    picture = Picture(page, "addressmap")
    said = picture.read_at(*picture.middle("base", 0))
    assert "used, parameter" in said
    assert "size: 8.00 MiB" in said
    assert "at: 0x7f0000000000" in said
    assert "b0" in said
    view = picture.read_at(*picture.middle("views", 0))
    assert "view 1" in view
    assert "lies at: 0x7f0000800000" in view


def test_choosing_a_view_brings_out_its_lines(page: Browser) -> None:
    picture = Picture(page, "addressmap")
    chosen = 'plot.part("lines").source.selected'
    assert picture.ask(chosen) == []
    picture.press("select option[value='1']")
    assert picture.ask(chosen) == [4, 5, 6, 7]
    picture.point_at(*picture.middle("views", 8)).click().perform()
    page.wait(lambda: picture.ask(chosen) == [8, 9, 10, 11])
    assert page.find("section.addressmap select").get_attribute("value") == "2"
    picture.press("select option[value='']")
    assert picture.ask(chosen) == []


def test_the_packing_says_what_a_rectangle_is(page: Browser) -> None:
    said = Picture(page, "packing").read_at(0.1, 100 * MIB)
    assert "what: layers.0.mlp" in said
    assert "size: 390 MiB" in said
    text = page.find("section.packing").text
    assert "400 rectangles in 8.11 GiB; no plan is lower than 7.81 GiB" in text


def test_the_packing_hides_what_the_legend_hides(page: Browser) -> None:
    picture = Picture(page, "packing")
    for name in ("key1", "height", "bound"):
        shown = f'plot.part("{name}").isShown'
        assert picture.ask(shown)
        picture.press(f"button[data-name={name}]")
        assert not picture.ask(shown)


def _column(page: Browser, kind: str, number: int) -> list[str]:
    rows = page.find_all(f"section.{kind} tbody tr > :nth-child({number})")
    return [cell.text for cell in rows if cell.is_displayed()]


def test_policies_are_sorted_by_any_column(page: Browser) -> None:
    names = _column(page, "policies", 1)
    assert names == ["caching", "expandable", "stitch", "plan least"]
    head = page.find("section.policies th:nth-child(6)")
    head.find_element("css selector", "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert _column(page, "policies", 6) == ["120.5", "80.1", "33.0", "12.0"]
    head.find_element("css selector", "button").click()
    assert _column(page, "policies", 6) == ["12.0", "33.0", "80.1", "120.5"]


def test_blocks_are_sorted_searched_and_opened(page: Browser) -> None:
    sizes = _column(page, "blocks", 1)
    assert len(sizes) == 60
    assert sizes[0] == "120 MiB"
    page.find("section.blocks th:nth-child(1) button").click()
    assert _column(page, "blocks", 1)[0] == "61.0 MiB"
    search = page.find("section.blocks input")
    search.send_keys("LAYERS.17 mlp")
    assert _column(page, "blocks", 1) == ["103 MiB"]
    assert page.find("section.blocks output").text == "1 of 60 rows"
    page.find("section.blocks tbody tr:not([hidden]) summary").click()
    assert "forward  model.py:17" in page.find("section.blocks tbody tr:not([hidden]) pre").text
    search.clear()
    search.send_keys("main.py:3", Keys.BACKSPACE)  # a call path is searched as well
    assert len(_column(page, "blocks", 1)) == 60


def test_every_control_is_reached_by_tab_and_shows_it(page: Browser) -> None:
    wanted = page.run(
        """return [...document.querySelectorAll("button, input, select, summary, .picture")]
            .filter((node) => node.checkVisibility()).length;"""
    )
    seen = []
    for _ in range(wanted + 20):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        active = page.driver.switch_to.active_element
        if active in seen:
            break
        seen.append(active)
        if len(seen) == 1:
            outline = page.run("return getComputedStyle(arguments[0]).outlineStyle", active)
            assert outline == "solid"
    controls = page.run(
        "return arguments[0].filter((node) => node.matches('button,input,select,summary,.picture'))"
        ".length",
        seen,
    )
    assert controls == wanted


def test_every_control_has_a_name(page: Browser) -> None:
    nameless = page.run(
        """return [...document.querySelectorAll("button, input, select, .picture, iframe")]
            .filter((node) => !(node.textContent.trim() || node.ariaLabel || node.labels?.length
                || node.getAttribute("aria-labelledby"))).map((node) => node.outerHTML);"""
    )
    assert nameless == []
    described = page.run(
        """return [...document.querySelectorAll("[aria-describedby], [aria-labelledby]")]
            .flatMap((node) => [node.getAttribute("aria-describedby"),
                node.getAttribute("aria-labelledby")])
            .filter(Boolean).flatMap((ids) => ids.split(" "))
            .filter((id) => !document.getElementById(id));"""
    )
    assert described == []


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    browser.open(render_page(report(HOSTILE)), tmp_path)
    said = Picture(browser, "packing").read_at(0.1, 100 * MIB)
    assert HOSTILE in said
    addresses = Picture(browser, "addressmap")
    assert HOSTILE in addresses.read_at(*addresses.middle("base", 0))
    assert HOSTILE in Picture(browser, "timeline").read_at(9.3, 11 * GIB)
    for kind in ALL:
        assert HOSTILE in browser.find(f"section.{kind} h2").text
    assert HOSTILE in browser.find("section.blocks summary").text
    assert browser.run("return typeof attacked") == "undefined"
    assert browser.find_all("img, textarea") == []
    assert browser.complaints() == []


def test_a_frame_in_a_notebook_draws_and_cannot_reach_out(browser: Browser, tmp_path: Path) -> None:
    frame = in_notebook(report())
    html = f"<!DOCTYPE html><html data-ready=true><body>{frame}</body></html>"
    browser.open(html, tmp_path)
    browser.driver.switch_to.frame(browser.find("iframe"))
    browser.wait(lambda: browser.run("return document.documentElement.dataset.ready") == "true")
    picture = Picture(browser, "timeline")
    start, end = picture.x_range()
    picture.press("[data-act=in]")
    assert picture.x_range()[1] - picture.x_range()[0] < end - start
    reached = browser.run("try { return Boolean(parent.document); } catch { return false; }")
    browser.driver.switch_to.default_content()
    assert not reached
    assert browser.complaints() == []


def test_the_print_is_light_and_without_controls(browser: Browser, tmp_path: Path) -> None:
    browser.emulate(prefers_color_scheme="dark")
    browser.open(render_page(report()), tmp_path)
    browser.emulate(prefers_color_scheme="dark", media="print")
    assert not browser.find(".zoom").is_displayed()
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    ink = Picture(browser, "timeline").ask("plot.colours.ink")
    assert ink == "#1c2128"
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_a_hundred_thousand_rectangles_open_soon(browser: Browser, tmp_path: Path) -> None:
    page = render_page(report(rectangles=100_000))
    assert len(page.encode()) < 10_000_000
    browser.open(page, tmp_path)
    assert browser.cpu_seconds() < MOST_CPU_SECONDS
    assert "100,000 rectangles" in browser.find("section.packing").text
    assert browser.complaints() == []


@pytest.mark.slow
def test_a_million_events_open_soon(browser: Browser, tmp_path: Path) -> None:
    """Half are allocations at random of random size, so that nothing folds by luck."""
    page = render_page(report_of(of_one_trace(random_trace(1_000_000))))
    assert len(page.encode()) < 10_000_000
    browser.open(page, tmp_path)
    assert browser.cpu_seconds() < MOST_CPU_SECONDS
    assert "1,000,000 events" in browser.find("section.timeline").text
    assert browser.complaints() == []


def test_the_first_picture_does_not_wait_for_the_others(browser: Browser, tmp_path: Path) -> None:
    figures = report(rectangles=20_000).figures
    pictures = [figures[0], *[figures[2]] * 8]
    with browser.before_pages(COUNT_DRAWN):
        browser.open(render_page(Report("many", (), tuple(pictures))), tmp_path)
    browser.wait(lambda: "gmlake-all" in browser.run("return window.drawn"))
    drawn = browser.run("return window.drawn")
    assert 1 <= drawn["gmlake-first"] < drawn["gmlake-all"] / 2
    assert drawn["gmlake-all"] == 9
    heights = browser.run(
        "return [...document.querySelectorAll('.picture')].map((box) => box.offsetHeight)"
    )
    assert heights == [340, *[420] * 8]  # as high as before they were drawn: nothing jumps
