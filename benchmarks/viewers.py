"""gmlake's page beside PyTorch's viewer, on one recording in one browser.

python benchmarks/viewers.py --viewer MemoryViz.js --d3 d3.v5.min.js [--events N ...] [--rounds N]
    [--write]

PyTorch's viewer is torch/utils/viz/MemoryViz.js of a PyTorch source tree; its five imports from the
network are replaced by the file of d3 5. Both are opened in headless Chromium without a GPU: the
processor draws everything.

first picture: from the recording to what can be seen. For PyTorch's viewer from the navigation to a
    page that fetches the file from this machine until it has drawn the memory over time; for gmlake
    the command that makes the page, and the browser from the navigation on. Both pages note the
    time themselves, in the first task behind the frame with the picture. Medians of several rounds,
    one of either in turn.
frames per second: while the picture of memory over time is zoomed in and out, once in each of 60
    frames, by the wheel (PyTorch's) or by keys (gmlake's). A viewer that has drawn nothing after
    LIMIT_SECONDS is given up.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import machine
from opening import write_as_pytorch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))
from browsing import Browser

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS: Final = (10_000, 100_000, 1_000_000)
LIMIT_SECONDS: Final = 240
FRAMES: Final = 60
_IMPORT = re.compile(r"^import .*? from .*?;\n", re.MULTILINE | re.DOTALL)
_NAMES = "const {axisLeft, scaleLinear, zoom, zoomIdentity, brushX} = d3;\n"
_PAGE = """<!DOCTYPE html><html><body><script src="d3.js"></script><script type="module">
import {add_remote_files} from "./viewer.js";
add_remote_files([{name: "large", url: "recording.pickle"}]);
</script></body></html>
"""
_COUNT_FRAMES = """
const done = arguments[arguments.length - 1], target = document.querySelector(arguments[0]);
const most = arguments[1], times = [];
target.scrollIntoView({block: "center"});
const box = target.getBoundingClientRect();
function frame(now) {
    times.push(now);
    if (times.length > most) {
        done(times);
        return;
    }
    const is_in = times.length % 8 < 5;
    EVENT
    requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
"""
_WHEEL = """
target.dispatchEvent(new WheelEvent("wheel", {
    bubbles: true, cancelable: true, view: window, deltaY: is_in ? -120 : 120,
    clientX: box.x + box.width / 3, clientY: box.y + box.height / 2}));
"""
_TRANSFORMS = "return [...document.querySelectorAll('svg g')].map((g) => g.outerHTML.slice(0, 99))"
_NOTE_FIRST = """
function look() {
    const then = document.querySelector("svg polygon, svg path")
        ? () => setTimeout(() => performance.mark("pytorch-first")) : look;
    requestAnimationFrame(then);
}
requestAnimationFrame(look);
"""
_SEEN = "return performance.getEntriesByName(arguments[0])[0]?.startTime"
_KEY = """
target.dispatchEvent(new KeyboardEvent("keydown", {bubbles: true, key: is_in ? "+" : "-"}));
"""


def frames_per_second(browser: Browser, selector: str, event: str) -> float:
    """Return how often the browser draws while each frame brings an event that zooms."""
    browser.driver.set_script_timeout(LIMIT_SECONDS)
    script = _COUNT_FRAMES.replace("EVENT", event)
    times = browser.driver.execute_async_script(script, selector, FRAMES)
    gaps: list[float] = [later - earlier for earlier, later in pairwise(times)]
    return round(1000 / statistics.mean(gaps), 1)


def open_browser() -> Browser:
    """Return one whose pages may take LIMIT_SECONDS."""
    browser = Browser(str(shutil.which("chromium")), str(shutil.which("chromedriver")))
    browser.driver.set_page_load_timeout(LIMIT_SECONDS)
    return browser


def serve(folder: Path) -> http.server.ThreadingHTTPServer:
    """Serve a folder on this machine; shut it down when done."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def of_pytorch(folder: Path, viewer: Path, d3: Path, *, with_frames: bool) -> dict[str, Any]:
    """Return the figures of PyTorch's viewer; a reason if it drew nothing."""
    source, count = _IMPORT.subn("", viewer.read_text(encoding="utf-8"))
    if not count:
        sys.exit(f"{viewer} imports nothing: is it MemoryViz.js?")
    (folder / "viewer.js").write_text(_NAMES + source, encoding="utf-8")
    (folder / "index.html").write_text(_PAGE, encoding="utf-8")
    shutil.copy(d3, folder / "d3.js")
    server = serve(folder)
    browser = open_browser()
    try:
        with browser.before_pages(_NOTE_FIRST):
            browser.driver.get(f"http://127.0.0.1:{server.server_address[1]}/index.html")
            begin = time.perf_counter()
            while not (first := browser.run(_SEEN, "pytorch-first")):
                if time.perf_counter() - begin > LIMIT_SECONDS:
                    return {"given up after seconds": LIMIT_SECONDS}
                time.sleep(0.05)
        first /= 1000
        if not with_frames:
            return {"first picture, s": round(first, 2)}
        shapes = browser.run("return document.querySelectorAll('svg polygon').length")
        before = browser.run(_TRANSFORMS)
        fps = frames_per_second(browser, "svg > g > g", _WHEEL)
        if before == browser.run(_TRANSFORMS):
            return {"failed": "it did not zoom"}
    except Exception as error:  # noqa: BLE001 (a page that dies ends in many ways)
        return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
    finally:
        browser.close()
        server.shutdown()
    return {"first picture, s": round(first, 2), "frames per second": fps, "shapes": shapes}


def of_gmlake(folder: Path, *, with_frames: bool) -> dict[str, Any]:
    """Return the figures of `gmlake view`."""
    page = folder / "page.html"
    begin = time.perf_counter()
    command = (sys.executable, "-m", "gmlake", "view", folder / "recording.pickle", "-o", page)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    made = time.perf_counter() - begin
    browser = open_browser()
    try:
        browser.driver.get(page.as_uri())
        browser.wait(lambda: browser.run(_SEEN, "gmlake-all"))
        drawn = browser.run(_SEEN, "gmlake-first") / 1000
        everything = browser.run(_SEEN, "gmlake-all") / 1000
        fps = frames_per_second(browser, "section.timeline .picture", _KEY) if with_frames else 0
    finally:
        browser.close()
    found = {
        "first picture, s": round(made + drawn, 2),
        "of it the command, s": round(made, 2),
        "all pictures, s": round(made + everything, 2),
    }
    return {**found, "frames per second": fps} if with_frames else found


def in_turn(rounds: int, *viewers: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the medians of each viewer's seconds, and the rest of its last round."""
    all_of: list[list[dict[str, Any]]] = [[] for _ in viewers]
    for number in range(rounds):
        for viewer, found in zip(viewers, all_of, strict=True):
            found.append(viewer(with_frames=number == rounds - 1))
    return [
        found[-1]
        | {
            name: round(statistics.median(one[name] for one in found if name in one), 2)
            for name in found[-1]
            if name.endswith(", s")
        }
        for found in all_of
    ]


def main() -> None:
    """Measure, print it, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--viewer", type=Path, required=True, help="MemoryViz.js")
    parser.add_argument("--d3", type=Path, required=True, help="d3 of version 5")
    parser.add_argument("--events", type=int, nargs="+", default=EVENTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="keep it as results/viewers.json")
    arguments = parser.parse_args()
    rows = []
    for events in arguments.events:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_as_pytorch(folder / "recording.pickle", events)
            ours, theirs = in_turn(
                arguments.rounds,
                functools.partial(of_gmlake, folder),
                functools.partial(of_pytorch, folder, arguments.viewer, arguments.d3),
            )
            row = {
                "events": events,
                "file_bytes": (folder / "recording.pickle").stat().st_size,
                "gmlake": ours,
                "pytorch": theirs,
            }
        print(json.dumps(row), flush=True)
        rows.append(row)
    if arguments.write:
        machine.write("viewers", {"rows": rows, "load_average": round(os.getloadavg()[0], 2)})


if __name__ == "__main__":
    main()
