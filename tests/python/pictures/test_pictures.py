"""Pages without a browser: what is in them, what is not, and what happens without Bokeh."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.pictures import in_notebook, render_page, write_page
from gmlake.pictures.figures import (
    AddressMap,
    Block,
    Blocks,
    Mark,
    Moment,
    Moments,
    Packing,
    Piece,
    Policies,
    Report,
    Stranded,
    Summary,
    Timeline,
    View,
)
from gmlake.pictures.folding import Finder, Line, fold
from gmlake.trace import REQUEST, Kind, Trace
from recording import BASE, MIB, alloc, block, event, free, load, segment

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.pictures.figures import Figure

HOSTILE = "</script><script>alert(1)</script><b onclick=x>'\"><i onfocus=x>&"
needs_bokeh = pytest.mark.skipif(
    find_spec("bokeh") is None, reason="Bokeh is not installed: pip install 'gmlake[view]'"
)


class Elements(HTMLParser):
    """The elements of a page: (tag, attributes); text of scripts and styles by the way."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def numbers(*values: float) -> Any:
    return np.array(values, np.float64)


def blocks(name: str = "mlp") -> Blocks:
    row = Block(3 << 20, 2, "activation", name, (name,), 0x7F00, 1)
    return Blocks(name, (row,), 4 << 20, name)


def policies(name: str = "stitch") -> Policies:
    return Policies(name, (name, "caching"), (2 << 30, 3 << 30), (0, 1), (1.5, 2.5), 1 << 30, name)


def timeline(name: str = "live") -> Timeline:
    return Timeline(name, numbers(0, 1, 2), {"parameter": numbers(1, 2, 3)}, None, (), name)


def packing(name: str = "plan") -> Packing:
    key = np.zeros(1, np.int32)
    begin, end, offset, size = numbers(0), numbers(1), numbers(0), numbers(512)
    return Packing(name, begin, end, offset, size, key, (name,), (name,), note=name)


def address_map(name: str = "addresses") -> AddressMap:
    row = (Piece(4096, 512, "used", "parameter", 0, name), Piece(4608, 512, "free"))
    return AddressMap(name, (row,), (View(8192, 512, True, ((8192, 4096, 512),), name),), name)  # noqa: FBT003


def moments(name: str = "at the peak") -> Moments:
    stranded = Stranded(name, 3 << 20, 2, 1 << 20, 1, name)
    told = [Moment(at, f"{name} {at}", (f"{name}.",), at << 20, (stranded,)) for at in range(3)]
    return Moments(name, tuple(told), 1, name, name, 1)


EMPTY: tuple[Figure, ...] = (
    Timeline("empty", numbers(), {}, None),
    AddressMap("empty", ()),
    Packing("empty", numbers(), numbers(), numbers(), numbers(), np.zeros(0, np.int32), ()),
    Policies("empty", (), (), (), (), 0),
    Blocks("empty", (), 0),
)


@needs_bokeh
@pytest.mark.parametrize("figure", EMPTY, ids=lambda figure: type(figure).__name__)
def test_nothing_to_draw_is_drawn(figure: Figure) -> None:
    assert "empty" in render_page(Report("a page", (), (figure,)))


@needs_bokeh
def test_a_page_names_no_other_file_and_allows_none() -> None:
    page = render_page(Report("a page", (), (timeline(), packing(), address_map(), blocks())))
    elements = Elements(page).found
    assert not [attrs for _, attrs in elements if "src" in attrs or "href" in attrs]
    policy = next(a["content"] for _, a in elements if "Content-Security-Policy" in a.values())
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "connect-src" not in policy
    assert len(page.encode()) < 2 << 20


def three_devices() -> dict[str, Any]:
    """Device 0 holds 10 MiB; device 1 is fuller; device 2 holds least, and was refused twice."""
    traces = [
        [event("segment_alloc", at, size * MIB), alloc(at, size * MIB)]
        for at, size in ((BASE, 10), (BASE + (1 << 36), 30), (BASE + (2 << 36), 5))
    ]
    traces[2] += 2 * [{**event("oom", 0, 500 * MIB), "device_free": MIB}]
    segments = []
    for device, (held, *_) in enumerate(traces):
        at, size = held["addr"], held["size"]
        segments.append(segment(at, size, [block(at, size, size)], device=device))
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}}


def test_the_device_that_was_refused_comes_first_then_the_fullest(tmp_path: Path) -> None:
    made = load(tmp_path, three_devices()).report()
    told = [one for one in made.figures if isinstance(one, Moments)]
    assert [one.title.partition(":")[0] for one in told] == ["Device 2", "Device 1", "Device 0"]
    assert [name for name, _ in made.facts if "peak" in name] == ["Device 2: live at the peak"]
    assert {name.partition(":")[0] for name, _ in made.facts} == {"Device 2"}
    assert [(one.name, one.says, one.group, one.is_refused) for one in made.summaries] == [
        ("Device 2", "5.00 MiB live at the peak, 5.00 MiB held, 2 requests refused", 3, True),
        ("Device 1", "30.0 MiB live at the peak, 30.0 MiB held, nothing refused", 2, False),
        ("Device 0", "10.0 MiB live at the peak, 10.0 MiB held, nothing refused", 1, False),
    ]


def test_what_was_held_is_of_the_peak_and_left_out_where_it_is_not_recorded(
    tmp_path: Path,
) -> None:
    data = three_devices()
    data["device_traces"][0] += [free(BASE, 10 * MIB), event("segment_free", BASE, 10 * MIB)]
    data["segments"] = []
    data["device_traces"][1] = data["device_traces"][1][1:]
    says = {one.name: one.says for one in load(tmp_path, data).report().summaries}
    assert says["Device 0"] == "10.0 MiB live at the peak, 10.0 MiB held, nothing refused"
    assert says["Device 1"] == "30.0 MiB live at the peak, nothing refused"


@needs_bokeh
def test_a_line_on_top_leads_to_each_device(tmp_path: Path) -> None:
    made = load(tmp_path, three_devices()).report()
    page = render_page(made)
    links = re.findall(r'<a href="#(\w+)"([^>]*)>(.*?)</a>', page)
    assert [text for _, _, text in links] == [f"{one.name}: {one.says}" for one in made.summaries]
    assert [style for _, style, _ in links] == [' class="bad"', "", ""]
    for place, _, text in links:
        part = page[page.index(f'id="{place}"') :]
        assert part[part.index("<h2") :].partition(">")[2].startswith(text.partition(":")[0])
    data = three_devices()
    data["device_traces"], data["segments"] = data["device_traces"][:1], data["segments"][:1]
    assert "<nav" not in render_page(load(tmp_path, data).report())


@needs_bokeh
def test_hostile_names_make_no_element() -> None:
    def page(name: str) -> str:
        made = (moments, timeline, packing, address_map, policies, blocks)
        figures = tuple(one(name) for one in made)
        return render_page(Report(name, ((name, name),), figures, (Summary(name, name, 1),)))

    plain = [tag for tag, _ in Elements(page("name")).found]
    hostile = Elements(page(HOSTILE)).found
    assert [tag for tag, _ in hostile] == plain
    assert not [attrs for _, attrs in hostile if any(key.startswith("on") for key in attrs)]


@needs_bokeh
def test_pictures_carry_their_data() -> None:
    page = render_page(Report("a page", (), (timeline(),)))
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found
    item = json.loads(found[1])
    assert item["target_id"] == "picture0"
    assert "live0" in found[1]
    assert "The peak is at event 2: 3 B live." in page


@needs_bokeh
def test_values_that_are_no_numbers_do_not_break_the_page() -> None:
    bad = Timeline("bad", numbers(0, 1), {"parameter": numbers(float("nan"), float("inf"))}, None)
    page = render_page(Report("a page", (), (bad,)))
    (data,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    json.loads(data, parse_constant=pytest.fail)


def test_tables_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    page = render_page(Report("a page", (("live", "1 B"),), (policies(), blocks())))
    assert "3.00 GiB" in page
    assert "75.0 %" in page
    assert "BokehJS" not in page
    assert len(page) < 1 << 17


def test_without_the_library_a_page_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(gmlake.UnsupportedError, match=r"gmlake\[view\]"):
        render_page(Report("a page", (), (timeline(),)))


def test_without_the_library_a_notebook_keeps_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    ((tag, attrs),) = Elements(in_notebook(Report("a page", (), (timeline(), blocks())))).found
    assert tag == "iframe"
    assert attrs["sandbox"] == "allow-scripts"
    inner = attrs["srcdoc"] or ""
    assert "gmlake[view]" in inner
    assert "3.00 MiB" in inner


def test_the_page_has_every_moment_as_data() -> None:
    page = render_page(Report("a page", (), (moments(),)))
    (data,) = re.findall(r"<script[^>]* data-moments[^>]*>(.*?)</script>", page, re.DOTALL)
    told = json.loads(data)
    assert told["shown"] == 1
    assert [one["says"] for one in told["moments"]] == 3 * [["at the peak."]]
    assert told["moments"][2]["stranded"] == [
        ["3.00 MiB", "2", "at the peak", "1.00 MiB", "1", "at the peak"]
    ]
    assert '<input type="range" id="moment0" min="0" max="2" value="1">' in page
    assert "BokehJS" not in page


def test_one_moment_needs_no_slider() -> None:
    one = Moments("now", moments().moments[:1], 0, group=1)
    assert 'type="range"' not in render_page(Report("a page", (), (one,)))


def test_rows_of_other_moments_are_there_and_hidden() -> None:
    row = Block(0, 0, "unknown", "later", counts=((0, 0), (2, 3)), one_bytes=512)
    shown = Block(512, 1, "unknown", "now", counts=((0, 1),), one_bytes=512)
    page = render_page(Report("a page", (), (Blocks("live", (shown, row), 512),)))
    assert '<tr data-gone="true" data-size="512" data-counts="0:0 2:3">' in page
    assert '<tr data-size="512" data-counts="0:1">' in page
    assert "1 rows, 512 B of 512 B" in page


@needs_bokeh
def test_no_number_is_written_with_an_exponent() -> None:
    seconds = numbers(0, 5e-4)
    marks = (Mark(1, "step", "step 1", 5e-4), Mark(1, "out of memory", "1 B refused", 5e-4))
    drawn = Timeline("live", numbers(0, 1), {"x": numbers(1, 2)}, None, marks, seconds=seconds)
    page = render_page(Report("a page", (), (drawn,)))
    assert "The peak is at event 1, 500 µs in: 2 B live." in page
    assert "Out of memory at event 1, 500 µs in: 1 B refused" in page


def _replayed() -> gmlake.ReplayReport:
    requests = np.zeros(3, REQUEST)
    requests["kind"], requests["id"] = [Kind.ALLOC, Kind.ALLOC, Kind.FREE], [0, 1, 0]
    requests["size_bytes"][:2] = 4 << 20
    trace = Trace(requests, name="a run")
    return gmlake.replay(trace, "caching,stitch")


@needs_bokeh
def test_results_show_themselves_in_a_notebook() -> None:
    ((tag, attrs),) = Elements(_replayed()._repr_html_()).found
    assert tag == "iframe"
    drawn = Elements(attrs["srcdoc"] or "").found
    assert ("section", "policies") in [(tag, attrs.get("class")) for tag, attrs in drawn]


def test_results_say_what_to_install_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    assert "gmlake[view]" not in _replayed()._repr_html_()


@needs_bokeh
def test_a_page_is_written(tmp_path: Path) -> None:
    report = Report("größer", (), (blocks(),))
    write_page(report, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render_page(report)
    with pytest.raises(OSError, match="No such file"):
        write_page(report, tmp_path / "missing" / "page.html")


def test_the_share_of_live_bytes_is_of_what_was_reserved() -> None:
    page = render_page(Report("a page", (), (policies(),)))
    rows = re.findall(r"<tr><th scope=\"row\".*?</tr>", page, re.DOTALL)
    assert ["50.0 %" in rows[0], "33.3 %" in rows[1]] == [True, True]
    assert ["least" in row for row in rows] == [True, False]


def test_long_rows_are_folded_without_losing_a_byte() -> None:
    row = (
        Piece(100, 1000, "used", label="long"),
        Piece(1100, 24, "absent"),
        Piece(1124, 2000, "free"),
    )
    lines = fold([row], [View(0, 200, True, ())])  # noqa: FBT003
    assert {line.end - line.begin for line in lines[:-1]} == {256}
    parts = [piece for line in lines for piece in line.pieces]
    ends = [piece.address + piece.size_bytes for piece in parts]
    assert [piece.address for piece in parts] == [100, *ends[:-1]]
    assert ends[-1] == 3124
    assert parts[0].label == "long, part of 1000 B at 0x64"
    sizes = {kind: sum(p.size_bytes for p in parts if p.kind == kind) for kind in ("used", "free")}
    assert sizes == {"used": 1000, "free": 2000}


def test_a_range_is_found_in_the_lines_that_it_crosses() -> None:
    finder = Finder([Line(1000, 1100, ()), Line(0, 100, ()), Line(100, 150, ())])
    found = [(1, 90, 0, 10), (2, 0, 10, 50), (0, 0, 910, 40)]
    assert list(finder.parts(90, 950)) == found
    assert list(finder.parts(200, 10)) == []
    assert list(finder.parts(5000, 10)) == []
    assert list(Finder([]).parts(0, 10)) == []
