"""How large the page of a recording is, and how long a browser takes until all of it is drawn.

python benchmarks/opening.py [--events N] [--large N] [--rounds N] [--write]

The recording: blocks of random size, at random addresses, that live for a random while, half of the
events allocations, with the call paths and marks of a program of 400 modules: nothing folds by
luck. 20,000 parameters live throughout, with a gap behind each. It is saved as PyTorch's snapshot,
loaded, and made into a page, as `gmlake view` does. The page is opened in headless Chromium without
a GPU: the processor draws everything.

Times of opening are from navigation until what was drawn can be seen: the first picture, and all.

A second recording, ten times as long, is saved as PyTorch does: each allocation with a list of
three frames, which its end names again. `gmlake view` makes a page of it: how long the command took
by the clock and of the processor, and what memory it had at most. To write the file takes 9 GB.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

import gmlake
import machine
from gmlake.pictures import render_page
from gmlake.snapshots import Site, Snapshot
from gmlake.snapshots.traces import of_trace
from gmlake.snapshots.writing import Frames, segments_of
from gmlake.trace import REQUEST, Kind, Trace
from gmlake.trace.layout import RANGE, SPAN, START_BLOCK

sys.path.insert(0, str(machine.ROOT / "tests" / "browser"))
from browsing import Browser

EVENTS: Final = 1_000_000
LARGE: Final = 10_000_000
PARAMETERS: Final = 20_000
MODULES: Final = 400
STEPS: Final = 500
_START_NS: Final = 1_700_000_000 * 10**9


def recording(events: int) -> Snapshot:
    """Return a snapshot of one device with so many events of memory, and a mark for each step."""
    random = np.random.default_rng(7)
    count = events // 2
    born = np.sort(random.integers(0, 10**9, count))
    died = born + random.integers(1, 10**7, count)
    order = np.argsort(np.concatenate([born, died]), kind="stable")
    sizes = random.integers(1, 4096, count) << 9
    requests = np.zeros(2 * count, REQUEST)
    requests["time_ns"] = _START_NS + 100 * np.concatenate([born, died])[order]
    requests["id"] = PARAMETERS + order % count
    requests["kind"] = np.where(order < count, Kind.ALLOC, Kind.FREE)
    requests["size_bytes"] = sizes[order % count]
    room = (1 << 34) * -(-events // EVENTS)  # what lives at once grows with the events, too
    requests["address"] = (1 << 40) + (np.cumsum(sizes) % room)[order % count]
    marks = np.zeros(STEPS, REQUEST)
    where = np.linspace(0, len(requests) - 1, STEPS).astype(np.int64)
    marks["kind"], marks["id"] = Kind.MARK, np.arange(STEPS)
    marks["time_ns"] = requests["time_ns"][where]
    labels = tuple(f"step {number}" for number in range(STEPS))
    start, segments, blocks = parameters(random)
    seen = of_trace(
        Trace(np.insert(requests, where, marks), segments, start, segments, blocks, labels=labels)
    )
    seen.categories[:] = random.integers(0, 6, len(seen.categories))
    has_id = seen.events["kind"] != Kind.MARK
    seen.event_sites[has_id] = 1 + seen.events["id"][has_id] % np.uint64(MODULES)
    return Snapshot((seen,), {1 + number: _site(number) for number in range(MODULES)})


def parameters(random: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return start blocks that live to the end, the segment around them, and its blocks."""
    blocks = np.zeros(2 * PARAMETERS, RANGE)
    blocks["size_bytes"] = random.integers(1, 4096, len(blocks)) << 9
    ends = np.cumsum(blocks["size_bytes"])
    blocks["address"] = (1 << 41) + ends - blocks["size_bytes"]
    blocks["is_used"][::2] = True
    blocks["requested_bytes"][::2] = blocks["size_bytes"][::2]
    start = np.zeros(PARAMETERS, START_BLOCK)
    start["id"] = np.arange(PARAMETERS)
    for name in ("address", "requested_bytes"):
        start[name] = blocks[name][::2]
    start["block_bytes"] = blocks["size_bytes"][::2]
    segments = np.zeros(1, SPAN)
    segments["address"], segments["size_bytes"] = 1 << 41, ends[-1]
    return start, segments, blocks


def _site(number: int) -> Site:
    frames = tuple(f"forward  /home/user/model/part{depth}.py:{number}" for depth in range(24))
    return Site(f"transformer.layers.{number}.mlp", frames)


def make(folder: Path, events: int) -> tuple[Path, dict[str, Any]]:
    """Write the page, and return it with what it took."""
    file, page = folder / "memory.pickle", folder / "memory.html"
    seen = recording(events)
    seconds: dict[str, float] = {}
    seconds["save"], _ = machine.timed(lambda: seen.save(file))
    seconds["save as a trace"], _ = machine.timed(
        lambda: seen[0].trace.save(folder / "memory.gmtrace")
    )
    seconds["load"], loaded = machine.timed(lambda: gmlake.load(file))
    seconds["make figures"], report = machine.timed(loaded.report)
    seconds["make the page"], text = machine.timed(lambda: render_page(report))
    page.write_text(text, encoding="utf-8")
    return page, {
        "events": events,
        "file_bytes": file.stat().st_size,
        "page_bytes": page.stat().st_size,
        "said": [figure.note for figure in report.figures],
        "cpu_seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def write_as_pytorch(path: Path, events: int) -> None:
    """Write a recording as torch.cuda.memory._dump_snapshot() does."""
    gc.disable()
    seen = recording(events)[0]
    frames = [
        {
            "name": f"forward{number}",
            "filename": f"/home/user/model/part{number}.py",
            "line": number,
        }
        for number in range(MODULES)
    ]
    rows = seen.events[seen.events["kind"] != Kind.MARK]
    paths: list[list[dict[str, Any]] | None] = [None] * seen.trace.id_count
    made = []
    for number, size, address, time_ns, stream, kind, _ in rows.tolist():
        called = paths[number]
        if called is None:
            outer = number // MODULES % 8
            called = paths[number] = [frames[number % MODULES], frames[outer], frames[0]]
        made.append(
            {
                "action": "alloc" if kind == Kind.ALLOC else "free_completed",
                "addr": address,
                "size": size,
                "stream": stream,
                "time_us": time_ns // 1000,
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": called,
            }
        )
    segments = segments_of(seen, Frames({}))
    with path.open("wb") as file:
        pickle.dump({"segments": segments, "device_traces": [made]}, file, protocol=4)


def open_large(folder: Path, events: int) -> dict[str, Any]:
    """Write a large file, and return what `gmlake view` of it took; each in its own process."""
    path, page = folder / "large.pickle", folder / "large.html"
    write = [sys.executable, __file__, "--write-large", str(path), "--large", str(events)]
    subprocess.run(write, check=True)  # noqa: S603
    begin = time.perf_counter()
    view = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "gmlake", "view", str(path), "-o", str(page)],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(view.pid, 0)
    if status:
        sys.exit("gmlake view failed")
    return {
        "events": events,
        "file_bytes": path.stat().st_size,
        "page_bytes": page.stat().st_size,
        "seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_memory_bytes": 1024 * usage.ru_maxrss,
    }


def _seconds_at(browser: Browser, mark: str) -> float:
    """Return when the page noted something, from navigation on."""
    asked = "return performance.getEntriesByName(arguments[0])[0]?.startTime"
    browser.wait(lambda: browser.run(asked, mark))
    return float(browser.run(asked, mark)) / 1000


def open_often(page: Path, rounds: int) -> dict[str, Any]:
    """Return how long a browser took; the first time is its own, as it starts what it needs."""
    browser = Browser(str(shutil.which("chromium")), str(shutil.which("chromedriver")))
    found: dict[str, list[float]] = {"first picture": [], "all pictures": []}
    try:
        for _ in range(rounds + 1):
            browser.open(page, page.parent)
            if browser.complaints():
                sys.exit("the browser complains about the page")
            for name, mark in (("first picture", "gmlake-first"), ("all pictures", "gmlake-all")):
                found[name].append(_seconds_at(browser, mark))
        version = browser.driver.capabilities["browserVersion"]
    finally:
        browser.close()
    return {
        "browser": f"Chromium {version}, headless, 1280 x 1000, drawn by the processor",
        "seconds": {
            name: {
                "median": round(statistics.median(times[1:]), 3),
                "highest": round(max(times[1:]), 3),
                "rounds": len(times) - 1,
            }
            for name, times in found.items()
        },
    }


def main() -> None:
    """Measure, print it, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--large", type=int, default=LARGE, help="events of PyTorch's file")
    parser.add_argument("--write-large", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=9, help="how often the page is opened")
    parser.add_argument("--write", action="store_true", help="keep it as results/opening.json")
    arguments = parser.parse_args()
    if arguments.write_large:
        write_as_pytorch(arguments.write_large, arguments.large)
    else:
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """Do so, and keep it where that is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        page, made = make(Path(folder), arguments.events)
        load_before = os.getloadavg()[0]
        opened = open_often(page, arguments.rounds)
        large = open_large(Path(folder), arguments.large)
    figures = {
        "made": made,
        "opened": opened,
        "large": large,
        "load_average": {"before": round(load_before, 2), "after": round(os.getloadavg()[0], 2)},
    }
    for name, value in figures.items():
        print(name, value)
    if arguments.write:
        machine.write("opening", figures)


if __name__ == "__main__":
    main()
