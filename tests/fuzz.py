"""Give every command files that were made to be wrong, and see whether it ends in a line.

make fuzz [MINUTES=60] [SEED=...]

A failure is a traceback, an exit code other than 0, 1 and 2, more than one line about a file, a
line that names an exception, output that is no JSON or steers a terminal, a page that runs what a
file says, a death by a signal, more than 20 s of CPU time, or more than 4 GiB of memory. Each input
follows from the seed and its number, so `--only N` makes one of them again. Files that fail are
kept in build/fuzz.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import pickle
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("", "python/support", "python/commands")]
sys.path.append(str(ROOT / "lab"))

import fuzz_files  # noqa: E402 (it is found there)

import gmlake  # noqa: E402
from gmlake.commands import main as run_command  # noqa: E402

if TYPE_CHECKING:
    from types import ModuleType

KEPT = ROOT / "build/fuzz"
CPU_SECONDS = 20.0
WALL_SECONDS = 600  # for what waits; what computes has its CPU time, whatever else runs here
MOST_GROWTH = 4 << 30
LONGEST_LINE = 600
MOST_PAGE_BYTES = 12_000_000
TRACEBACK = 70  # the exit code of a command that raised
EXCEPTION = re.compile(r"Traceback|\b[A-Z][a-zA-Z]+(Error|Exception|Warning)\b")
RUNS = ("<img src=x", "<script>attacked", "<svg onload")
MARK = "case.json"
READERS = {
    "snapshot": ("view", "view", "replay", "replay"),
    "own snapshot": ("view", "view", "view", "replay"),
    "instructions": ("view", "replay"),
    "own trace": ("view", "replay", "replay"),
}
COMMANDS = ["view", "replay"]


@dataclass
class Outcome:
    """How an input ended. reason: of a failure, "" for none. seconds: CPU time of the command."""

    kind: str
    words: list[str]
    reason: str
    code: int | None = None
    seconds: float = 0.0


# ---- the command line


def words_for(rng: random.Random, case: fuzz_files.Case) -> list[str]:
    """Return a command that reads the files, with options."""
    command = rng.choice(READERS[case.kind] if rng.random() < 0.95 else COMMANDS)
    name = next(iter(case.data))
    words = [command, *_OPTIONS[command](rng)]
    names = [name] if command == "view" or rng.random() < 0.9 else [name, *case.data]
    if command in ("view", "replay", "plan") and rng.random() < 0.15:
        words += ["--device", rng.choice(("0", "0", "1", "-1", "65535", "9" * 30))]
    return [*words, *names]


def _view(rng: random.Random) -> list[str]:
    words = ["-o", "page.html"]
    if rng.random() < 0.15:
        words += ["--replay", rng.choice(("all", *gmlake.policies()))]
    if "plan" in COMMANDS and rng.random() < 0.03:
        words += ["--plan"]
    return words


def _replay(rng: random.Random) -> list[str]:
    known = gmlake.policies()
    words = ["--policy", "all" if rng.random() < 0.1 else rng.choice(known)]
    if rng.random() < 0.3:
        words += ["--capacity", rng.choice(("1", "20MiB", "160MiB", "80GiB", "1TiB", "16PiB"))]
    for knob in rng.sample(list(gmlake.knobs()), rng.choice((0, 0, 0, 1, 2))):
        setting = rng.choice([*knob["words"]] or ["0", "1", "2097152", str(2**63), str(2**64 - 1)])
        words += ["--set", f"{knob['name']}={setting}"]
    return words + _json(rng)


def _json(rng: random.Random) -> list[str]:
    return ["--json"] if rng.random() < 0.4 else []


_OPTIONS = {
    "view": _view,
    "replay": _replay,
}


def annexes() -> list[ModuleType]:
    """Return tests/python/*/fuzzing.py of annexes: more files and commands."""
    found = []
    for path in sorted(ROOT.glob("tests/python/*/fuzzing.py")):
        spec = importlib.util.spec_from_file_location(f"fuzzing_{path.parent.name}", path)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        found.append(module)
    return found


ANNEXES = annexes()
for _annex in ANNEXES:
    fuzz_files.KINDS += _annex.KINDS
    READERS |= {kind: (*READERS.get(kind, ()), *more) for kind, more in _annex.READERS.items()}
    COMMANDS += _annex.OPTIONS
    _OPTIONS |= _annex.OPTIONS


# ---- one input


def warm_up() -> None:
    """Make what all inputs begin with, and import what commands do, once for all processes."""
    fuzz_files.prepare()
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        trace = str(fuzz_files.TRACES[0])
        document = fuzz_files.program(random.Random(1), "caching")
        (folder / "x.pickle").write_bytes(pickle.dumps(document, 4))
        for words in (
            ["view", trace, "-o", str(folder / "page.html"), "--replay", "caching"],
            ["replay", str(folder / "x.pickle")],
            *(words for annex in ANNEXES for words in annex.warm_up(folder)),
        ):
            run_command(words)


def make_and_run(seed: int, number: int, folder: Path) -> int:
    """In a process of its own: make the input, and run a command on it; the exit code."""
    rng = random.Random(f"{seed}:{number}")
    case = fuzz_files.make(rng)
    words = words_for(rng, case)
    for name, data in case.data.items():
        (folder / name).write_bytes(data)
    os.chdir(folder)
    about = {"kind": case.kind, "words": words, "begin_s": time.process_time()}
    Path(MARK).write_text(json.dumps(about), encoding="utf-8")
    del case
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(3 * CPU_SECONDS), int(3 * CPU_SECONDS)))
    _point_to(0, os.devnull, os.O_RDONLY)
    _point_to(1, "stdout", os.O_WRONLY | os.O_CREAT)
    _point_to(2, "stderr", os.O_WRONLY | os.O_CREAT)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    warnings.simplefilter("always")
    try:
        code = run_command(words)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else TRACEBACK
    except BaseException:  # noqa: BLE001 (the failure that is looked for)
        traceback.print_exc()
        code = TRACEBACK
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


def _point_to(descriptor: int, name: str, flags: int) -> None:
    opened = os.open(name, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


def try_input(seed: int, number: int, folder: Path) -> Outcome:
    """Fork, and judge what the child did."""
    resident = _resident_bytes()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = TRACEBACK
        try:
            code = make_and_run(seed, number, folder)
        except BaseException:  # noqa: BLE001 (nothing of the child may go on as the parent)
            traceback.print_exc()
        finally:
            os._exit(code)
    is_late = _wait(child)
    if is_late:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    if not (folder / MARK).exists():
        return Outcome("none", [], "the input could not be made")
    about = json.loads((folder / MARK).read_text(encoding="utf-8"))
    words = about["words"]
    seconds = used.ru_utime + used.ru_stime - about["begin_s"]
    if is_late:
        reason = f"did not end within {WALL_SECONDS} s"
    elif seconds > CPU_SECONDS:
        reason = f"took {seconds:.0f} s of CPU time"
    elif os.WIFSIGNALED(status):
        reason = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    elif used.ru_maxrss * 1024 - resident > MOST_GROWTH:
        reason = f"took {used.ru_maxrss >> 20} GiB of memory"
    else:
        reason = judge(os.WEXITSTATUS(status), words, folder)
    return Outcome(about["kind"], words, reason, os.waitstatus_to_exitcode(status), seconds)


def _resident_bytes() -> int:
    """Return what a child of fork begins with: memory of files is not among it."""
    _, resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[:3]
    return (int(resident) - int(shared)) * resource.getpagesize()


def _wait(child: int) -> bool:
    """Return whether it still runs after all the time that it has."""
    descriptor = os.pidfd_open(child)
    try:
        return not select.select([descriptor], [], [], WALL_SECONDS)[0]
    finally:
        os.close(descriptor)


def judge(code: int, words: list[str], folder: Path) -> str:
    """Return what is wrong with what a command said and wrote, "" for nothing."""
    said = (folder / "stderr").read_bytes().decode("utf-8", "backslashreplace")
    out = (folder / "stdout").read_bytes().decode("utf-8", "backslashreplace")
    if code == TRACEBACK or "Traceback" in said:
        return f"a traceback: {said.strip().splitlines()[-1] if said.strip() else ''}"
    if code not in (0, 1, 2):
        return f"exit code {code}"
    lines = said.splitlines()
    files = sum((folder / word).exists() for word in words)
    if not (1 <= len(lines) <= max(files, 1) if code == 2 else not lines):
        return f"exit code {code} with {len(lines)} lines on stderr"
    wrong = next(filter(None, map(judge_line, lines)), "")
    return wrong or judge_output(code, words, out, folder)


def judge_line(line: str) -> str:
    """Return what is wrong with a line about a file."""
    if not line.startswith("gmlake: ") or not line.isprintable() or len(line) > LONGEST_LINE:
        return f"a line that is none of ours, or too long: {line[:200]!a}"
    if EXCEPTION.search(line):
        return f"a line that names an exception: {line[:200]}"
    return f"a small file that takes too much: {line[:200]}" if "takes more than" in line else ""


def judge_output(code: int, words: list[str], out: str, folder: Path) -> str:
    """Return what is wrong with the tables, the JSON or the page."""
    if not all(line.isprintable() for line in out.split("\n")):
        return "control characters on standard output"
    if "--json" in words and (code < 2 or out):
        try:
            json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            return f"the JSON is none: {error}"
    page = folder / "page.html"
    if page.exists():
        html = page.read_text(encoding="utf-8")
        if len(html) > MOST_PAGE_BYTES:
            return f"a page of {len(html)} bytes"
        if any(piece in html for piece in RUNS):
            return "a page that runs what the file says"
    elif code == 0 and words[0] == "view":
        return "no page"
    return ""


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} in it")


# ---- many


def keep(place: Path, outcome: Outcome, folder: Path) -> None:
    """Copy what failed to where it stays."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    (place / "reason").write_text(outcome.reason + "\n", encoding="utf-8")


def main() -> int:
    """Try inputs until the time is over, and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--count", type=int, default=10**9, help="end after so many inputs")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, default=KEPT, help="where failing files are kept")
    parser.add_argument(
        "--only", type=int, metavar="N", help="this input alone, and keep its files"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}, gmlake of {Path(gmlake.__file__).parent}", flush=True)
    warm_up()
    kinds: defaultdict[str, list[Outcome]] = defaultdict(list)
    failures = 0
    first = options.only or 0
    begin = time.monotonic()
    for number in range(first, first + options.count if options.only is None else first + 1):
        if time.monotonic() - begin > 60 * options.minutes:
            break
        with tempfile.TemporaryDirectory() as folder:
            outcome = try_input(options.seed, number, Path(folder))
            command = outcome.words[0] if outcome.words else "nothing"
            kinds[f"{command} of {outcome.kind}"].append(outcome)
            if outcome.reason or options.only is not None:
                place = options.keep / f"{options.seed}-{number}"
                keep(place, outcome, Path(folder))
                print(f"{number}: gmlake {' '.join(outcome.words)}: {outcome.reason or 'passes'}")
                print(f"  kept in {place}", flush=True)
            failures += bool(outcome.reason)
    for name, found in sorted(kinds.items()):
        codes = sorted(Counter(one.code for one in found).items(), key=str)
        told = ", ".join(f"{count} with {code}" for code, count in codes)
        most = max(one.seconds for one in found)
        print(f"{len(found):8} {name}: {told}; up to {most:.1f} s")
    total = sum(map(len, kinds.values()))
    print(f"{failures} of {total} failed in {(time.monotonic() - begin) / 60:.1f} minutes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
