"""The command line: what it answers, and what it is as a process."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import pty
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.commands import COMMANDS, common, load
from gmlake.pytorch import versions
from places import ROOT, SHIPPED
from recording import BASE, MIB, alloc, block, event, free, segment, snapshot
from running import refused, run

if TYPE_CHECKING:
    from pathlib import Path

RESULT_KEYS = {
    *("trace", "policy", "events", "allocations", "peak_live_bytes", "peak_reserved_bytes"),
    *("utilization", "states", "driver_calls", "driver_time_ns", "seconds", "wanted_bytes"),
    *("first_refused", "refused_bytes", "asked_at", "is_refused_again", "device"),
}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A small snapshot that is in order."""
    blocks = [block(BASE, 5 * MIB, 5 * MIB), block(BASE + 5 * MIB, 15 * MIB)]
    events = [event("segment_alloc", BASE, 20 * MIB), alloc(BASE, 5 * MIB)]
    path = tmp_path / "good.pickle"
    path.write_bytes(pickle.dumps(snapshot(events, [segment(BASE, 20 * MIB, blocks)]), 4))
    return path


def test_version_and_help() -> None:
    assert run("--version").stdout == f"gmlake {gmlake.__version__}\n"
    text = run("--help").stdout
    for name, purpose in COMMANDS.items():
        assert name in text
        assert (load(name).__doc__ or "").splitlines()[0] == purpose
        assert run(name, "--help").stdout.startswith(f"usage: gmlake {name}")


def test_the_script_is_installed(good: Path) -> None:
    script = os.path.join(os.path.dirname(sys.executable), "gmlake")  # noqa: PTH118, PTH120
    done = subprocess.run(
        [script, "validate", "--json", good], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_replay_prints_a_table_per_trace(good: Path) -> None:
    done = run("replay", good, SHIPPED[0])
    assert (done.returncode, done.stderr) == (0, "")
    assert "good.pickle: 2 events" in done.stdout
    assert SHIPPED[0].name in done.stdout
    for policy in gmlake.policies():
        assert sum(line.split()[:1] == [policy] for line in done.stdout.splitlines()) == 2
    assert all(len(line.rstrip()) <= 80 for line in done.stdout.splitlines())


def test_replay_json(good: Path) -> None:
    done = run("replay", good, "--policy", "caching,stitch", "--capacity", "80GiB", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)["results"]
    assert [result["policy"] for result in results] == ["caching", "stitch"]
    assert all(set(result) == RESULT_KEYS for result in results)
    caching = results[0]
    assert caching["trace"] == "good.pickle"
    assert (caching["events"], caching["allocations"]) == (2, 1)
    assert caching["peak_live_bytes"] == 5 * MIB
    assert caching["peak_reserved_bytes"] == 20 * MIB
    assert caching["utilization"] == 0.25
    assert caching["states"] == {
        "exact": 0,
        "split": 0,
        "stitch": 0,
        "grow": 1,
        "oom": 0,
        "plan": 0,
    }
    assert caching["driver_calls"]["malloc"] == 1


def test_replay_settings(good: Path) -> None:
    done = run("replay", good, "--policy", "stitch", "--set", "growth=64MiB", "--json")
    assert json.loads(done.stdout)["results"][0]["peak_reserved_bytes"] == 64 * MIB


def test_replay_capacity(good: Path) -> None:
    done = run("replay", good, "--policy", "caching", "--capacity", "4MiB", "--json")
    assert json.loads(done.stdout)["results"][0]["states"]["oom"] == 1


def test_validate(good: Path) -> None:
    done = run("validate", good, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "results": [
            {
                "trace": "good.pickle",
                "policy": "caching",
                "allocations": 1,
                "addresses_matched": 1,
                "segments": 1,
                "segments_matched": 1,
                "final_blocks": 2,
                "final_blocks_matched": 2,
                "statistics": 0,
                "statistics_matched": 0,
                "reserved_events": 0,
                "reserved_matched": 0,
                "peak_reserved_bytes": 20 * MIB,
                "recorded_peak_bytes": 20 * MIB,
                "pooled_allocations": 0,
                "remarks": [],
                "differences": [],
            }
        ]
    }
    assert "1 of 1" in run("validate", good).stdout


def tampered(path: Path, address: int) -> Path:
    """Write a snapshot that says an allocation lay where PyTorch would not have placed it."""
    blocks = [block(BASE, 5 * MIB), block(BASE + 5 * MIB, 15 * MIB)]
    events = [event("segment_alloc", BASE, 20 * MIB), alloc(address, 5 * MIB)]
    path.write_bytes(pickle.dumps(snapshot(events, [segment(BASE, 20 * MIB, blocks)]), 4))
    return path


def test_validate_tells_by_its_exit_code(good: Path, tmp_path: Path) -> None:
    wrong = tampered(tmp_path / "wrong.pickle", BASE + 512)
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(b"x")
    assert "exit code: 0 if all" in run("validate", "--help").stdout
    for files, code in (
        ([good], 0),
        ([wrong, good], 1),
        ([bad, wrong, good], 2),
        ([wrong, bad], 2),
    ):
        done = run("validate", *files, "--json")
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        names = [result["trace"] for result in json.loads(done.stdout)["results"]]
        assert names == [path.name for path in files if path != bad]


def test_validate_keeps_the_devices_before_one_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "two.pickle"
    first, second = [event("segment_alloc", BASE, 2 * MIB)], [free(BASE, 512)]
    path.write_bytes(pickled(snapshot([]) | {"device_traces": [first, second]}))
    done = run("validate", path, "--json")
    assert done.returncode == 2
    assert [result["trace"] for result in json.loads(done.stdout)["results"]] == ["two.pickle:0"]


def test_validate_statistics(good: Path) -> None:
    mark = {"label": "end", "events": 2, "is_trim": False, "free_bytes": 1 << 30}
    stats = {"active.all.peak": 1, "num_ooms": 3}
    good.with_suffix(".json").write_text(
        json.dumps({"limit_bytes": None, "marks": [{**mark, "stats": stats}]})
    )
    done = run("validate", good, "--statistics")
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 of 2" in done.stdout
    assert "end, after 2 events: num_ooms is 0, PyTorch's 3" in done.stdout


def test_info() -> None:
    done = run("info", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    about = json.loads(done.stdout)
    assert about["version"] == gmlake.__version__
    assert [each["name"] for each in about["policies"]] == list(gmlake.policies())
    assert all(each["help"] for each in about["policies"])
    drivers = {entry["driver"]: entry for entry in about["drivers"]}
    assert set(drivers) >= {"cuda", "host", "sim"}
    assert drivers["sim"]["granularity_bytes"] == 2 * MIB
    assert drivers["sim"]["has_virtual_memory"] is True
    if not drivers["cuda"]["available"]:
        assert drivers["cuda"]["reason"]
    text = run("info").stdout
    assert gmlake.__version__ in text
    assert not any(f" {knob['name']} " in text for knob in gmlake.knobs())
    text = run("info", "--knobs").stdout
    assert all(knob["name"] in text for knob in gmlake.knobs())
    (knob,) = (each for each in about["knobs"] if each["name"] == "optimize_for")
    assert (knob["default"], knob["words"]) == (1, ["time", "balanced", "memory"])
    lines = [line.split() for line in text.splitlines() if line[:2] > "  "]
    rows = {words[0]: words[1] for words in lines if len(words) > 1}
    shown = {
        name: rows[name] for name in ("optimize_for", "max_view_bytes", "frag_limit", "max_views")
    }
    assert list(shown.values()) == ["balanced", "16TiB", "0", "16384"]
    assert " max_split_size                     no limit  " in text


@pytest.mark.parametrize("columns", ["60", ""])
def test_info_is_as_wide_as_the_terminal(columns: str) -> None:
    text = run("info", "--knobs", COLUMNS=columns).stdout
    assert max(map(len, text.splitlines())) <= int(columns or 80)


def started(*arguments: str, **variables: str) -> str:
    """Run gmlake in a process of its own, which has imported nothing yet; return what it said."""
    command = [sys.executable, "-m", "gmlake", *arguments]
    environment = os.environ | variables
    return subprocess.check_output(command, text=True, env=environment)


def fake_pytorch(folder: Path, version: str, cuda: str | None) -> None:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('it was imported')")
    (folder / "torch" / "version.py").write_text(
        f"__version__ = {version!r}\ncuda = {cuda!r}\ngit_version = 'a'\n"
    )


@pytest.mark.parametrize(
    ("version", "cuda", "said"),
    [
        ("2.11.0+cpu", None, "this PyTorch was built without CUDA"),
        ("2.7.1", "12.8", f"PyTorch {versions.RANGE}, and this is 2.7.1"),
        ("2.11.0", "13.0", "libcuda.so.1"),
    ],
)
def test_info_says_how_pytorch_would_be_served(
    tmp_path: Path, version: str, cuda: str | None, said: str
) -> None:
    fake_pytorch(tmp_path, version, cuda)
    settings = {"PYTHONPATH": str(tmp_path), "CXX": "no-such-compiler"}
    settings["XDG_CACHE_HOME"] = str(tmp_path)
    about = json.loads(started("info", "--json", **settings))
    pytorch, cuda_driver = about["pytorch"], about["drivers"][0]
    assert pytorch["torch"] == version
    assert pytorch["compiler"] == ""
    if version != "2.11.0":
        assert pytorch["source"] == ""
        assert said in pytorch["why"]
    elif not cuda_driver["available"]:
        assert pytorch["why"]
    if pytorch["mode"] == "off":
        lines = started("info", **settings, COLUMNS="400").splitlines()
        assert lines[0].split() == ["gmlake", gmlake.__version__]
        assert lines[1].split() == ["PyTorch", version]
        assert f"off: {pytorch['why']}" in lines[4]


def test_several_devices(tmp_path: Path) -> None:
    data = snapshot([alloc(BASE, 1)])
    data["device_traces"].append([alloc(BASE, MIB)])
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps(data, 4))
    both = json.loads(run("replay", path, "--policy", "stitch", "--json").stdout)["results"]
    assert [result["trace"] for result in both] == ["two.pickle:0", "two.pickle:1"]
    one = run("replay", path, "--policy", "stitch", "--device", "1", "--json")
    assert json.loads(one.stdout)["results"][0]["peak_live_bytes"] == MIB


# ---- bad files


def pickled(data: object) -> bytes:
    return pickle.dumps(data, 4)


class _Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch owned",)


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "text": (b"hello, world\n", "not a memory snapshot"),
    "truncated": (pickled(snapshot([alloc(BASE, 1)] * 9))[:-40], "cut off"),
    "code": (pickled({"segments": [_Payload()]}), "wants to load or call code"),
    "json": (b'{"segments": [', "not valid JSON"),
    "deep_json": (b"[" * 50_000, "nested too deeply"),
    "long_json_number": (b'{"segments": [' + b"9" * 5000 + b"]}", "not valid JSON"),
    "wrong_top": (pickled(42), "not a memory snapshot: the file holds 42"),
    "wrong_key": (pickled({"a": 1}), "neither 'segments' nor 'device_traces'"),
    "wrong_events": (pickled(snapshot([1])), "event 0: the event is 1, not a dict"),  # type: ignore[list-item]
    "negative": (pickled(snapshot([alloc(BASE, 1), alloc(BASE, -5)])), "event 1: alloc: 'size' is"),
    "absurd": (pickled(snapshot([alloc(BASE, 2**60)])), "event 0: alloc: 'size' is"),
    "double_alloc": (pickled(snapshot([alloc(BASE, 1)] * 2)), "event 1: allocates 0x7f"),
    "double_free": (
        pickled(snapshot([alloc(BASE, 1), free(BASE, 1), free(BASE, 1)])),
        "event 2: frees 0x7f0000000000, which event 1 freed already",
    ),
    "missing_key": (pickled(snapshot([{"action": "alloc", "size": 5}])), "event 0: alloc has no"),
    "own_format": (b"GMLTRACE" + b"\0" * 100, "not a whole gmlake trace"),
    "huge_length": (b"\x80\x04X\xff\xff\xff\xff", "it was cut off"),
    "utf8_mark": (b'\xef\xbb\xbf{"segments": []}', "byte order mark"),
    "utf16": ('{"segments": []}'.encode("utf-16"), "UTF-16"),
    "utf16_be": ('{"segments": []}'.encode("utf-16-be"), "UTF-16"),
    "utf16_le": ('{"segments": []}'.encode("utf-16-le"), "UTF-16"),
    "utf32": ('{"segments": []}'.encode("utf-32"), "UTF-32"),
    "no_stream": (pickled(snapshot([alloc(BASE, 1), alloc(BASE + MIB, 1, stream=-1)])), "event 1:"),
}


@pytest.mark.parametrize("command", ["replay", "validate"])
@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_one_line(command: str, kind: str, tmp_path: Path) -> None:
    contents, reason = BAD_FILES[kind]
    path = tmp_path / "bad.pickle"
    path.write_bytes(contents)
    line = refused(command, path)
    assert line.startswith(f"gmlake: {path}: ")
    assert reason in line
    assert not (tmp_path / "owned").exists()


def test_a_strange_file_name_stays_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nb\x1b[31m.pickle"
    path.write_bytes(b"x")
    assert "a\\nb\\x1b[31m.pickle" in refused("replay", path)


def test_the_other_files_still_run(good: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(b"x")
    done = run("replay", bad, good, tmp_path / "none", "--policy", "stitch", "--json")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 2
    assert [result["trace"] for result in json.loads(done.stdout)["results"]] == ["good.pickle"]


BAD_RECORDINGS: dict[str, tuple[dict[str, Any], str]] = {
    "divisions": ({"roundup_power2_divisions": {"4096": 2**31}}, "divisions.4096 is 2147483648"),
    "interval": ({"roundup_power2_divisions": {"zz": 4}}, "roundup_power2_divisions.zz"),
    "split": ({"max_split_size": 5}, "max_split_size is 5"),
}


@pytest.mark.parametrize("kind", BAD_RECORDINGS)
def test_recorded_settings_are_the_fault_of_the_file(kind: str, good: Path, tmp_path: Path) -> None:
    settings, reason = BAD_RECORDINGS[kind]
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(pickled(snapshot([alloc(BASE, 1)]) | {"allocator_settings": settings}))
    done = run("validate", bad, good, bad, "--json")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"gmlake: {bad}: ") and reason in line for line in lines)
    assert [result["trace"] for result in json.loads(done.stdout)["results"]] == ["good.pickle"]


def test_a_segment_of_no_bytes_is_the_fault_of_the_file(good: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(pickled(snapshot([event("segment_alloc", BASE, 0), alloc(BASE, 1)])))
    done = run("validate", bad, good, "--json")
    assert done.returncode == 2
    assert done.stderr.startswith(f"gmlake: {bad}: ")
    assert done.stderr.count("\n") == 1
    assert [result["trace"] for result in json.loads(done.stdout)["results"]] == ["good.pickle"]


def test_an_event_that_the_core_refuses_is_the_fault_of_the_file(good: Path) -> None:
    with pytest.raises(gmlake.TraceError, match=r"^a: what$"), common.named("a"):
        raise ValueError("what")
    with pytest.raises(gmlake.TraceError, match=r"^a: needs more memory"), common.named("a"):
        raise MemoryError
    assert "good.pickle" not in refused("replay", good, "--set", "chunk_size=3")


@pytest.mark.parametrize("command", ["replay", "validate"])
def test_a_strange_file_name_stays_out_of_the_table(
    command: str, good: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a\nb\x1b[31m\x9b2J\u202e.pickle"
    path.write_bytes(good.read_bytes())
    table = run(command, path).stdout
    assert "\x1b" not in table
    assert "\x9b" not in table
    assert "\u202e" not in table
    assert "a\\nb\\x1b[31m\\x9b2J\\u202e.pickle" in "".join(
        line.rstrip() for line in table.splitlines()
    )
    shown = str(gmlake.replay(gmlake.load_trace(path), "stitch"))
    assert "\x1b" not in shown
    assert "a\\nb" in shown


@pytest.mark.parametrize("command", ["replay", "validate"])
def test_no_events_is_an_answer(command: str, tmp_path: Path) -> None:
    path = tmp_path / "none.pickle"
    path.write_bytes(pickled(snapshot([])))
    done = run(command, path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    for result in json.loads(done.stdout)["results"]:
        assert result["allocations"] == 0
    assert run(command, path).returncode == 0


def test_frees_of_unknown_addresses_were_live_before(tmp_path: Path) -> None:
    path = tmp_path / "head-lost.pickle"
    path.write_bytes(pickled(snapshot([free(BASE, 512)], [segment(BASE, 2 * MIB, [])])))
    done = run("replay", path, "--policy", "caching", "--json")
    assert json.loads(done.stdout)["results"][0]["peak_live_bytes"] == 512


# ---- terminals, pipes, interrupts


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["info"], ["info", "--json"]])
def test_output_that_cannot_be_written(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "gmlake", *arguments]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 (a device)
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"gmlake: cannot write the output: No space left on device\n"
    closed = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closed, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == b"gmlake: standard output is closed\n"


@pytest.mark.parametrize("target", ["&-", "/dev/full"])
def test_errors_that_cannot_be_written(target: str) -> None:
    command = [sys.executable, "-m", "gmlake", "replay", "absent"]
    silent = ["/bin/sh", "-c", f'exec "$@" 2>{target}', "sh", *command]
    done = subprocess.run(silent, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["info"]])
def test_a_closed_pipe_is_no_error(arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "gmlake", *arguments]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, good: Path) -> None:
    code = (
        "import sys, gmlake.commands.common as common, gmlake.commands as commands;"
        f"common.LONG_REPLAY = 1; sys.exit(commands.main(['replay', {str(good)!r}]))"
    )
    monkeypatch.setenv("TERM", "xterm")
    silent = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (silent.returncode, silent.stderr) == (0, b"")
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=theirs):
        os.close(theirs)
        assert b"good.pickle" in drain(ours)


def drain(descriptor: int) -> bytes:
    """Read a pseudo-terminal until the other side closes it."""
    seen = b""
    while select.select([descriptor], [], [], 600)[0]:
        try:
            piece = os.read(descriptor, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(descriptor)
    return seen


# The command, which replays again and again.
ENDLESS = """
import runpy, sys
from gmlake.commands import replay
once = replay.replay
def endlessly(*arguments, **options):
    once(*arguments, **options)
    print("begun", flush=True)
    while True:
        once(*arguments, **options)
replay.replay = endlessly
runpy.run_module("gmlake", run_name="__main__")
"""


def _interrupt(process: subprocess.Popen[bytes]) -> bytes:
    """Interrupt until the program has ended, as users do; return its errors.

    One interrupt may be lost: numpy drops what is raised while it asks an operand's type for
    `__array_ufunc__`, which runs code of enum's in Python 3.11.
    """
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=60)[1]
    process.kill()
    return b"it went on"


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_ends_quietly() -> None:
    command = [sys.executable, "-c", ENDLESS, "replay", str(SHIPPED[0])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        errors = _interrupt(process)
    assert process.returncode == 130
    assert errors == b""


def test_the_repository_has_the_traces_of_the_demo() -> None:
    assert SHIPPED, f"no traces in {ROOT}/examples/traces"
