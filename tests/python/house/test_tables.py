"""Tables that results make: documents have them as they are made, and each says what made it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = ROOT / "benchmarks" / "tables.py"
AWAITED: set[tuple[str, str]] = set()
"""Tables of results that are not there yet."""


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def places() -> Iterator[tuple[str, str]]:
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        yield from re.findall(r"<!-- from (\w+): (\w+) -->", path.read_text(encoding="utf-8"))


def test_documents_have_what_results_say() -> None:
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_table_is_in_a_document_or_awaited() -> None:
    from tabled import TABLES

    there = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    assert set(places()) == {each for each in TABLES if each not in AWAITED}
    assert {result for result, _ in AWAITED}.isdisjoint(there), "it has come: show it"


SAID = (
    r"`python [^`]+`; commit [^;]+; 20\d\d-\d\d-\d\d; [^;]+; (PyTorch [^;]+, )?Python [\d.]+"
    r"(; [^;†]+(; † one run)?|; † one run)\."
)
"""Command, commit, date, processor or GPU, versions, and on how many runs it rests."""


def wrong_with_table(table: str, result: str) -> list[str]:
    rows, _, captions = table.partition("\n\n")
    source = re.escape(f"[{result}.json](benchmarks/results/{result}.json)")
    odd = [line for line in rows.splitlines() if not line.startswith("|")]
    lines = captions.split("<br>\n")
    odd += [line for line in lines if not re.fullmatch(rf"<sub>{source}: {SAID}</sub>", line)]
    return odd + ["† is not explained"] * (("†" in rows) != ("† one run" in captions))


def test_tables_say_what_made_them() -> None:
    from tables import rendered

    found = {
        f"{result}: {name}": wrong
        for result, name in sorted(set(places()))
        if (wrong := wrong_with_table(rendered(result, name, ROOT), result))
    }
    assert found == {}


def test_a_table_that_does_not_say_what_made_it_is_found() -> None:
    said = "`python a.py`; commit 0123456; 2026-11-27; a GPU; Python 3.12.3; two runs"
    source = "[x.json](benchmarks/results/x.json)"
    assert wrong_with_table(f"| a |\n\n<sub>{source}: {said}.</sub>", "x") == []
    assert wrong_with_table(f"| † |\n\n<sub>{source}: {said}.</sub>", "x") == ["† is not explained"]
    assert wrong_with_table(f"a\n\n<sub>{said}.</sub>", "x") == ["a", f"<sub>{said}.</sub>"]


DOCUMENT = "# One\n\n<!-- from speed: pairs -->\nold\n<!-- end -->\n\nText.\n"


def test_a_document_is_written_and_a_changed_digit_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "document.md"
    path.write_text(DOCUMENT, encoding="utf-8")
    assert run(path).returncode == 1
    assert run("--write", path).returncode == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# One\n\n<!-- from speed: pairs -->\n\n| ns |")
    assert text.endswith("\n<!-- end -->\n\nText.\n")
    assert run(path).returncode == 0
    digit = re.search(r"\d(?= \|)", text)
    assert digit
    other = f"{(int(digit[0]) + 1) % 10}"
    path.write_text(text[: digit.start()] + other + text[digit.end() :], encoding="utf-8")
    done = run(path)
    assert done.returncode == 1
    assert "its results" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("speed: pairs", "speed: gone", "no table is called 'speed: gone'"),
        ("<!-- end -->", "", "begins and does not end"),
        ("<!-- from speed: pairs -->", "", "ends and does not begin"),
        ("<!-- end -->", "<!-- from speed: pairs -->\n<!-- end -->", "begins and does not end"),
        ("<!-- from speed: pairs", "<!-- from speed pairs", "begins and does not end"),
    ],
)
def test_a_wrong_mark_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    path = tmp_path / "document.md"
    path.write_text(DOCUMENT.replace(old, new), encoding="utf-8")
    done = run("--write", path)
    assert done.returncode == 2
    assert why in done.stderr


RUN = {
    "command": "python -m gpu.x --rounds 3 --output /root/out/x.json",
    "commit": "0123456",
    "date": "2026-11-27",
    "gpu": "NVIDIA H100 80GB HBM3",
    "processor": "a processor",
    "python": "3.12.3",
}


def test_what_a_caption_says() -> None:
    from tabled.markdown import caption

    where = "`python -m gpu.x --rounds 3`; commit 0123456; 2026-11-27; NVIDIA H100 80GB HBM3"
    assert caption(RUN, [3, 3]) == f"<sub>{{source}}: {where}; Python 3.12.3; three runs.</sub>"
    assert caption(RUN, [1, 3, 2], versions="PyTorch 2.11") == (
        f"<sub>{{source}}: {where}; PyTorch 2.11, Python 3.12.3; two runs or three runs; "
        "† one run.</sub>"
    )
    assert "; a processor; " in caption({**RUN, "gpu": "none: simulated"}, "medians")


def test_how_a_command_is_shown() -> None:
    from tabled.markdown import command_of

    for command, shown in {
        "python a.py --write": "python a.py",
        "python a.py --write b --x 3 --y 3": "python a.py --x 3 --y 3",
        "python a.py t/1.gmtrace t/2.gmtrace --n 2": "python a.py t/*.gmtrace --n 2",
        "python a.py ../x/1.pickle ../x/2.pickle": "python a.py FILE...",
        "python a.py --join /1.json /2.json --output o": "python a.py --join FILE...",
    }.items():
        assert command_of({"command": command}) == shown


def comparison(side: str, base: str, **told: Any) -> dict[str, Any]:
    ratio = {"ratio": 0.9876, "low": 0.95, "high": 1.0123}
    return {
        "program": "moe",
        "side": side,
        "base": base,
        "pairs": 200,
        "has_same_losses": True,
        "device": "NVIDIA H100 80GB HBM3",
        "torch": "2.11.0",
        "ratios": {"wall": ratio},
        "median_ms": {side: {"wall": 98.76}, base: {"wall": 100.0}},
        "driver_per_step": {side: {"ms": 1.234}, base: {"ms": 0.0}},
        **told,
    }


def test_turns_are_shown_and_what_rests_on_one_process_is_marked() -> None:
    from tabled import TABLES

    result = {
        "run": RUN,
        "comparisons": [
            comparison("again", "default"),
            comparison("gmlake", "default", has_same_losses=False),
            comparison("gmlake", "default", run={**RUN, "commit": "1234567"}),
            comparison("gmlake", "expandable"),
            {"program": "lora", "side": "gmlake", "base": "default", "failed": "no memory"},
        ],
    }
    text = TABLES["gpu_turns", "turns"](result)
    rows = [[cell.strip() for cell in line.split("|")[3:-1]] for line in text.splitlines()[2:6]]
    ratio = "0.988 (0.950 to 1.012)"
    assert rows == [
        ["gmlake / expandable segments", "200", f"{ratio} †", "", "98.8/100.0", "1.23", "the same"],
        ["gmlake / PyTorch's default", "200", ratio, "", "98.8/100.0", "1.23", "**differ**"],
        ["gmlake / PyTorch's default", "200", ratio, "", "98.8/100.0", "1.23", "the same"],
        [
            "the default again / PyTorch's default",
            "200",
            f"{ratio} †",
            "",
            "98.8/100.0",
            "",
            "the same",
        ],
    ]
    captions = text.partition("\n\n")[2]
    assert captions.count("commit 1234567") == 1
    assert captions.count("commit 0123456") == 2
    assert "two runs" in captions
    assert "† one run" in captions


def varied(allocator: str, *late: float) -> dict[str, Any]:
    spread = {"median": sorted(late)[len(late) // 2], "least": min(late), "most": max(late)}
    size = {"median": 3 << 30}
    return {
        "program": "moe",
        "fraction": 0.0,
        "allocator": allocator,
        "finished": len(late),
        "late_seconds": spread,
        "late_step_seconds": spread,
        "late_driver_share": None,
        "peak_allocated_bytes": size,
        "peak_reserved_bytes": size,
        "utilization": size,
    }


def test_a_figure_of_one_run_is_marked_beside_those_of_several() -> None:
    from tabled import TABLES

    rows = [varied("default", 1.0, 2.0, 3.0), varied("expandable", 4.0), varied("gmlake", 5.0, 6.0)]
    figures = {"run": RUN, "steps": {"moe": 60}, "versions": {"torch": "2.11"}, "summary": rows}
    for result in (figures, {"parts": [figures]}):
        text = TABLES["gpu_varying", "programs"](result)
        cells = [cell.strip() for cell in text.splitlines()[2].split("|")[2:-1]]
        assert cells == [
            *("H100", "1 or 2 or 3", "3.00", "3.00 †", "3.00", "3.00"),
            *("4.00 †", "2.00", "6.00"),
        ]
        assert text.endswith(
            "PyTorch 2.11, Python 3.12.3; two runs or three runs; † one run.</sub>"
        )
        spreads = TABLES["gpu_varying", "spreads"](result)
        assert "| PyTorch's default | three runs | 2.00 (1.00 to 3.00) |" in spreads
        assert "| expandable segments | one run | 4.00 † |" in spreads


def served(**told: Any) -> dict[str, Any]:
    return {
        "peak_allocated_bytes": 3 << 30,
        "peak_reserved_bytes": 5 << 30,
        "device_bytes": 4 << 30,
        "first_calls": [1234, 1234],
        "repeated_calls": [1, 2],
        "seconds": {"host": [0.002, 0.004], "device": [0.1, 0.1]},
        "has_same_pictures": True,
        "torch": "2.11.0",
        **told,
    }


def test_peers_are_compared_with_what_lives_in_the_program() -> None:
    from tabled import TABLES

    ways = {
        "aimdo": {"failed": "not installed"},
        "planned": served(peak_allocated_bytes=2 << 30, device_bytes=3 << 30),
        "default": served(has_same_pictures=False),
        "async": served(repeated_calls=[None, None]),
    }
    text = TABLES["gpu_peers", "inference"]({"run": RUN, "rounds": 2, "ways": ways})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:6]]
    held = ("3.000", "5.000", "4.000", "0.600")
    less = ("3.000", "5.000", "3.000", "0.600")
    times = ("3.00 (2.00 to 4.00)", "100.00 (100.00 to 100.00)")
    assert rows == [
        ["PyTorch's default", *held, "0.750", "1,234", "1 to 2", *times, "**differs**"],
        ["cudaMallocAsync", *held, "0.750", "1,234", "not counted", *times, "the same"],
        ["gmlake, planned steps", *less, "1.000", "1,234", "1 to 2", *times, "the same"],
        ["comfy-aimdo, a scope for each block", "failed: not installed", *[""] * 9],
    ]
    assert text.endswith("PyTorch 2.11.0, Python 3.12.3; two runs.</sub>")


def test_a_first_sleep_stands_beside_the_later_ones() -> None:
    from tabled import TABLES

    told = {
        "first_sleep_seconds": 4.567,
        "sleep_seconds": [0.3, 0.1, 0.2],
        "wake_seconds": [0.5, 0.6, 0.4],
        "copies": {"out": [0.11, 0.12, 0.13], "in": [0.21, 0.22, 0.23]},
        "stays_bytes": 3 << 20,
        "has_same_logits": True,
        "torch": "2.11.0",
    }
    ways = {
        "vllm": {"failed": "no module"},
        "torch_memory_saver_retained": {**told, "has_same_logits": False},
        "gmlake": told,
    }
    text = TABLES["gpu_sleeping", "ways"]({"run": RUN, "ways": ways})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:4]]
    figures = (
        *("4.57", "0.200 (0.100 to 0.300)", "0.500 (0.400 to 0.600)"),
        *("0.120 (0.110 to 0.130)", "0.220 (0.210 to 0.230)", "3"),
    )
    assert rows == [
        ["`gmlake.sleep`, `gmlake.wake`", *figures, "the same"],
        ["torch_memory_saver, `retain_cpu_backup`", *figures, "**differ**"],
    ]
    assert text.endswith("Python 3.12.3; three rounds after the first, in one process.</sub>")


def test_what_handing_over_costs_is_added_up() -> None:
    from tabled import TABLES

    def way(name: str, chunk: int, **steps: float) -> dict[str, Any]:
        return {"way": name, "chunk_bytes": chunk << 20, "steps_ms": steps}

    ways = [
        way("malloc", 2, free=1.04, malloc=2.5),
        way("malloc", 32, free=0.5, malloc=1.1),
        way("released", 2, create=3.0, set_access=1234.0),
    ]
    text = TABLES["gpu_handing_costs", "costs"](
        {"run": RUN, "handed_bytes": 20 << 30, "ways": ways}
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:5]]
    assert rows == [
        [
            *("blocks of cuMemAlloc are freed, and as many allocated", "2", "4"),
            "free 1.0, malloc 2.5",
        ],
        ["", "32", "2", "free 0.5, malloc 1.1"],
        [
            *("chunks are released, and as many created", "2", "1,237"),
            "create 3.0, set access 1,234.0",
        ],
    ]
    assert "20 GiB handed over" in text


@pytest.mark.parametrize(("second", "said"), [("0x2p+0", "the first 1 of 2"), ("0x1p+0", "all 2")])
def test_losses_that_are_the_same_are_counted(second: str, said: str) -> None:
    from tabled import TABLES

    def told(*losses: str) -> dict[str, Any]:
        return {"live_bytes": 1 << 30, "reserved_bytes": 2 << 30, "losses": losses}

    ways = {way: told("0x1p+0", "0x1p+0") for way in ("default", "gmlake")}
    programs = {"deepspeed_zero3": {**ways, "expandable": told("0x1p+0", second)}}
    text = TABLES["gpu_others", "computed"](
        {"run": RUN, "versions": {"deepspeed_zero3": "0.1"}, "programs": programs}
    )
    assert f"| {said} |" in text


def test_a_server_has_a_row_for_each_allocator_and_blanks_where_it_cannot_sleep() -> None:
    from tabled import TABLES

    def seen(gib: int) -> dict[str, int]:
        return {"live_bytes": 3 << 30, "used_bytes": gib << 30}

    whole = {"moments": {"booted": seen(4), "asleep": seen(1), "awake": seen(5)}}
    ways = {"default": whole, "expandable": {"moments": {"booted": seen(6)}}, "gmlake": whole}
    programs = {"vllm_sleeps": ways, "sglang_releases": ways}
    versions = {"vllm_sleeps": "1.2", "sglang_releases": "3.4"}
    text = TABLES["others", "servers"]({"run": RUN, "versions": versions, "programs": programs})
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n")]
    live = "live, GiB"
    assert head == [
        "server",
        "allocator",
        live,
        "used of the device, GiB: booted",
        "asleep",
        "awake",
    ]
    assert rows[0] == ["vLLM 1.2", "PyTorch's default", "3.00", "4.00", "1.00", "5.00"]
    assert rows[4] == ["SGLang 3.4", "expandable segments", "3.00", "6.00", "", ""]
    assert [row[0] for row in rows[:6]] == ["vLLM 1.2"] * 3 + ["SGLang 3.4"] * 3
    programs["vllm_sleeps"]["expandable"] = whole
    alone = TABLES["others", "vllm"]({"run": RUN, "versions": versions, "programs": programs})
    assert alone.split("\n")[4] == "| `gmlake run` | 4.00 | 1.00 | 5.00 |"
