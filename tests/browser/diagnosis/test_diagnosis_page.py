"""The page of a diagnosis in headless Chromium: drawn, hovered, and clicked for what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gmlake
from browsing import Browser, Picture
from gmlake.diagnosis import TraceBuilder
from gmlake.diagnosis.pages import report_of_diagnosis
from gmlake.pictures import render_page

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>attacked = 1</script><img src=x onerror='attacked = 2'>\"&amp;"
SHOWN = (
    "return [...document.querySelectorAll('section.found tbody tr')].filter(r => !r.hidden).length"
)


def page_of(ending: str = "") -> str:
    builder = TraceBuilder(f"program{ending}")
    first = builder.alloc(4 << 20, name=f"first{ending}")
    second = builder.alloc(2 << 20, name=f"second{ending}")
    for call in range(6):
        builder.kernel(f"kernel {call}{ending}", reads=[second], writes=[first] if call > 3 else [])
    builder.kernel("last", reads=[first], stream=3)
    builder.free(first)
    builder.free(second)
    return render_page(report_of_diagnosis(gmlake.find_inefficiencies(builder.build())))


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    browser.open(page_of(), tmp_path)
    return browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_drawn_without_a_complaint_and_without_the_network(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    browser.emulate(prefers_color_scheme=scheme)
    browser.open(page_of(), tmp_path)
    assert browser.complaints() == []
    asked = [url for url in browser.requests() if not url.startswith(("data:", "blob:"))]
    assert asked == [(tmp_path / "page.html").as_uri()]
    for kind in ("timeline", "calls", "lifelines", "found"):
        assert browser.find(f"section.{kind} h2").text


@pytest.mark.parametrize("kind", ["calls", "lifelines"])
def test_pictures_zoom(page: Browser, kind: str) -> None:
    picture = Picture(page, kind)
    start, end = picture.x_range()
    picture.press("[data-act=in]")
    inner = picture.x_range()
    assert start < inner[0] < inner[1] < end
    picture.box.send_keys("0")
    assert picture.x_range() == pytest.approx((start, end))


def test_a_click_on_an_object_shows_what_to_change_of_it(page: Browser) -> None:
    everything = page.run(SHOWN)
    picture = Picture(page, "lifelines")
    picture.point_at(*picture.middle("searches", 0)).click().perform()
    page.wait(lambda: page.run("return document.querySelector('section.found input').value"))
    assert page.run("return document.querySelector('section.found input').value") == "first"
    of_first = page.run(SHOWN)
    assert 0 < of_first < everything
    text = page.run(
        "return [...document.querySelectorAll('section.found tbody tr')]"
        ".filter(r => !r.hidden).map(r => r.textContent).join()"
    )
    assert "allocate `first` right before" in text


def test_hovering_a_call_names_it(page: Browser) -> None:
    picture = Picture(page, "calls")
    assert "kernel 1" in picture.read_at(3.5, 0)


def test_names_are_text(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(HOSTILE), tmp_path)
    assert browser.run("return typeof attacked") == "undefined"
    assert "<script>attacked" in browser.find("section.found tbody").text
