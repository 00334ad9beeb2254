"""gmlake report: words, JSON and a page about the ranks of a job."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from gmlake.commands import main
from gmlake.commands.common import print_report
from gmlake.jobs.folder import read_folder
from gmlake.jobs.report import report_of
from gmlake.jobs.summary import RAISED, Curve, Refusal, of_bytes, to_bytes
from made_ranks import BEGAN, MIB, device, line, rank, write

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.jobs.summary import Summary

GIB = 1 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four ranks, the third holds more by one line and was refused; the last is missing."""
    common = [line(7, GIB)]
    usual = device([2 * GIB] * 20, [*common, line(41, GIB)])
    full = device([3 * GIB] * 20, [*common, line(41, 2 * GIB)], refused=2, limit_bytes=4 * GIB)
    refusal = Refusal(0, 19, 700 * MIB, 64 * MIB, 3 * GIB, 3400 * MIB, line(41, 0).frame)
    error = "OutOfMemoryError: CUDA out of memory. Tried to allocate 700.00 MiB"
    third = rank(2, 4, full, refusals=(refusal,), state=RAISED, error=error, host="<script>x")
    write(tmp_path / "job", rank(0, 4, usual), rank(1, 4, usual), third)
    return tmp_path / "job"


def test_json_has_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["schema"] == "gmlake.job/1"
    assert told["missing"] == [3]
    (refusal,) = told["refusals"]
    assert (refusal["rank"], refusal["step"], refusal["size_bytes"]) == (2, 19, 700 * MIB)
    assert refusal["line"] == "train.py:41 in layer41()"
    (difference,) = told["differences"]
    assert (difference["odd"], difference["odd_bytes"]) == (["rank 2"], 2 * GIB)
    assert [one["reserved_bytes"] for one in told["ranks"]] == [
        2 * GIB * 11 // 10,
        2 * GIB * 11 // 10,
        3 * GIB * 11 // 10,
    ]
    assert {one["name"] for one in told["spread"]} == {
        *("live", "reserved", "live / reserved", "in use on the device")
    }


def test_the_page_has_the_same_and_escapes_it(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    for part in ("train.py:41 in layer41()", "no file of rank 3", "700 MiB", "&lt;script&gt;x"):
        assert part in text
    assert "<script>x" not in text
    assert text.count("<section") == 4


def test_a_page_that_cannot_be_written_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder), "-o", str(folder / "none" / "page.html")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


# ---- one file of three says what cannot be


def changed(place: str, value: str) -> bytes:
    """The file of rank 1 of 3 with another value, as JSON, at a place such as "devices.0.name"."""
    refusal = Refusal(0, 3, GIB, 0, GIB, GIB)
    made = rank(1, 3, device([GIB] * 20, [line(7, GIB)]), refusals=(refusal,), steps=1000)
    document = json.loads(to_bytes(made))
    inner, *parts = document, *place.split(".")
    for part in parts[:-1]:
        inner = inner[int(part) if part.isdigit() else part]
    inner[int(parts[-1]) if parts[-1].isdigit() else parts[-1]] = "HERE"
    return json.dumps(document).replace('"HERE"', value).encode()


HUGE = str(1 << 61)
FOUR = [rank(number, 4, device([GIB], [])) for number in range(4)]
LINES = json.dumps([{"frame": "f  a.py:1", "size_bytes": (1 << 50) - 1, "count": 1}] * 4096)
ABSURD = {
    **{("world", value): "it is of rank 1 of " for value in ("30000000", "65537", "1", "0")},
    **{
        (place, value): f"its {place.rpartition('.')[2]} is not a whole number from 0 to 2^50: "
        for place in ("steps", "pid", "devices.0.live_bytes", "devices.0.lines.0.size_bytes")
        for value in (HUGE, str(1 << 50), "-1", "1.5", "1.0", "true", "null", '"7"', "NaN", "[7]")
    },
    **{
        ("written", value): "its written is not seconds from 1970 to 2106: "
        for value in (HUGE, "-1", "1e999", "NaN", "false")
    },
    ("rank", "-2"): "its rank is not a whole number from -1 to 2^50: -2",
    ("rank", "-1"): "it is of rank -1 of 3",
    ("steps", "9" * 5000): "it is cut off, or no JSON",
    ("steps", "[" * 800 + "]" * 800): "its steps is not a whole number",
    ("steps", "[" * 100_000 + "]" * 100_000): "it is cut off, or no JSON",
    ("host", f'"{"x" * 301}"'): "its host is not a text of at most 300 characters: ",
    ("job", f'"{"x" * 2_000_000}"'): "at most 1048576 are read",
    ("state", '"dead"'): "its state is 'dead'",
    ("devices.0.curve.live", "[7]"): "its steps contradict each other",
    ("devices.0.curve.each", "0"): "its steps contradict each other",
    ("devices.0.curve.each", "2"): "its steps contradict each other",
    ("devices.0.curve", json.dumps(asdict(Curve(3, (1,) * 200, (1,) * 200)))): "its steps contra",
    ("devices.0.curve", json.dumps(asdict(Curve(8, (1,) * 200, (1,) * 200)))): "its steps contra",
    ("devices.0.curve.each", HUGE): "its each is not a whole number",
    ("devices.0.lines", "{}"): "its lines is not a list of at most 4,096: {}",
    ("devices.0.lines", f"[{'7,' * 4096}7]"): "its lines is not a list of at most 4,096: ",
    ("devices.0", "7"): "its devices is not an object: 7",
    ("devices", json.dumps([asdict(device([], []))] * 2)): "it has a device twice",
    ("devices", "[]"): "it was refused memory of a device that it does not have",
    ("schema", '"gmlake.rank/2"'): "no rank wrote it",
}


@pytest.mark.parametrize(("place", "value"), ABSURD)
def test_a_file_that_cannot_be_costs_a_line(
    place: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = device([GIB] * 20, [line(7, GIB)])
    write(tmp_path / "job", rank(0, 3, usual), rank(2, 3, usual))
    (tmp_path / "job" / "rank1.json").write_bytes(changed(place, value))
    begin = time.process_time()
    assert main(["report", str(tmp_path / "job"), "--json"]) == 0
    assert time.process_time() - begin < 1
    told = json.loads(capsys.readouterr().out)
    assert (told["job"]["of"], told["missing"], len(told["ranks"])) == (1, [1], 2)
    (said,) = told["unreadable"]
    assert said.startswith("rank1.json: ")
    assert said.endswith("; copy it again, or remove it")
    assert ABSURD[place, value] in said
    assert len(said) < 200


SCRIPT = "\ud800</script>\x1b[31m\0\u202e"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((f"devices.0.{name}", "0") for name in ("total_bytes", "limit_bytes", "reserved_bytes")),
        *((name, json.dumps(SCRIPT)) for name in ("host", "job", "error", "policy", "settings")),
        *((f"refusals.0.{name}", json.dumps(SCRIPT)) for name in ("why", "frame")),
        *((f"devices.0.{name}", json.dumps(SCRIPT)) for name in ("name", "lines.0.frame")),
        ("devices.0.lines", LINES),
        ("devices.0.curve", '{"each": 1, "live": [], "reserved": []}'),
        ("unknown", "NaN"),
        ("written", "0"),
    ],
)
def test_what_is_odd_is_reported_and_drawn(
    place: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank1.json").write_bytes(changed(place, value))
    write(tmp_path / "job", rank(0, 3, device([GIB], [line(7, GIB)])))
    for number in ("1", "2")[: 1 + (place == "job")]:
        page = tmp_path / f"{number}.html"
        assert main(["report", str(tmp_path / "job"), "--job", number, "-o", str(page)]) == 0
        page.read_bytes().decode()
        said = capsys.readouterr().out
        assert all(each.isprintable() for each in said.splitlines())
        assert "not readable" not in said


def test_half_a_character_is_written_and_read() -> None:
    assert of_bytes(to_bytes(rank(0, 1, error="\udcff"))).error == "\\udcff"


def beside(count: int, **changed: Any) -> list[Summary]:
    """So many ranks of another process each, from rank 1 on."""
    world = changed.pop("world", 4)
    return [rank(1 + n, world, pid=7, **{"started": BEGAN + 2.5, **changed}) for n in range(count)]


@pytest.mark.parametrize(
    ("odd", "number", "named"),
    [
        (beside(1), 2, "rank 1 of 4"),
        (beside(1, world=5, started=BEGAN + 9), 2, "rank 1 of 5"),
        (beside(1, world=5, written=0), 2, "rank 1 of 5"),
        (beside(2), 2, "ranks 1-2 of 4"),
        (beside(3), 1, "ranks 1-3 of 4"),
        (beside(1, started=BEGAN + 3630), 1, ""),
        (beside(1, restart=1), 1, ""),
        (beside(1, job="other"), 1, ""),
        ([rank(-1, 1, started=BEGAN + 2.5)], 1, ""),
    ],
)
def test_a_few_ranks_that_contradict_many_are_named_and_no_part_of_their_job(
    odd: list[Summary], number: int, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = read_folder(write(tmp_path / "job", *FOUR, *odd)[0].parent)
    assert [job.world == len(job.ranks) == 4 for job in folder.jobs] == [number == 1, number == 2]
    print_report(report_of(folder, number), 500)
    _, others, said, *_ = capsys.readouterr().out.splitlines()
    assert others.startswith("other jobs: 1 more")
    files = ", ".join(path.name for path in write(tmp_path / "job", *odd))
    end = f"{files}; --job {3 - number} reports it, or remove it"
    assert said == f"contradicts: {named}, at the same time: {end}" or not named
    assert said.startswith("contradicts") == bool(named)


def test_a_rank_that_begins_later_is_of_the_run_that_lives(tmp_path: Path) -> None:
    """Not of the one whose ranks wrote last before it began, nor of a copy of one rank."""
    ended = [replace(one, started=BEGAN - 100, written=BEGAN - 1, pid=7) for one in FOUR[:3]]
    copy = rank(0, 4, pid=7, started=BEGAN + 0.5)
    folder = read_folder(write(tmp_path / "job", *ended, *FOUR, copy)[0].parent)
    assert [len(job.ranks) for job in folder.jobs] == [3, 1, 4]


def test_clocks_may_be_set_back(tmp_path: Path) -> None:
    back = [replace(one, written=0) for one in FOUR]
    (job,) = read_folder(write(tmp_path / "job", *back)[0].parent).jobs
    assert job.ranks == tuple(back)


def test_files_that_are_not_looked_at_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gmlake.jobs.folder.MOST_RANKS", 3)
    folder = read_folder(write(tmp_path / "job", *FOUR)[0].parent)
    assert (len(folder.jobs[0].ranks), folder.unreadable) == (3, ("1 more files: only 3 are read",))
