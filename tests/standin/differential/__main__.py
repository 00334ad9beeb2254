"""Run random programs under PyTorch's allocator and under gmlake, and report each difference.

python -m tests.standin.differential --programs 20000 --seed 1 [--kinds streams,graphs] [--jobs 2]
python -m tests.standin.differential --only SEED --verbose
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.standin.differential.kinds import KINDS, choose, draw, kind_of
from tests.standin.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.standin.differential.programs import Setting

BATCH = 12
LONGEST_SECONDS = 120.0  # without a line of a program that takes milliseconds
TELLING = ("misuse:", "what():", "Error: ", "FAILED")
MOST_ALONE = 40  # differences of a kind that are looked at once more, alone


@dataclass
class Result:
    """What a side said of a program. left: bytes that stay reserved when all is freed."""

    problem: str = ""
    refused: list[int] = field(default_factory=list)
    left: int = 0


@dataclass(frozen=True)
class Difference:
    """A program that differs."""

    seed: int
    kind: str
    what: str
    after: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return it as the two lines that are printed."""
        seeds = ",".join(map(str, [*self.after, self.seed]))
        return (
            f"seed {self.seed}, {self.kind}: {self.what}\n"
            f"    python -m tests.standin.differential --only {seeds} --verbose"
        )


class Worker:
    """A process that forks for each batch."""

    def __init__(self, setting: Setting) -> None:
        self.errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (for as long as it)
        environment = dict(os.environ) | {"PYTORCH_ALLOC_CONF": setting.conf}
        environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        command = [
            *(sys.executable, "-m", "tests.standin", "--backed"),
            *("--capacity", str(setting.capacity), "--devices", str(setting.devices)),
        ]
        self.folder = tempfile.TemporaryDirectory()
        if setting.neighbour:
            command += ["--shared", f"{self.folder.name}/devices"]
            environment["XDG_RUNTIME_DIR"] = self.folder.name
        self.process = subprocess.Popen(
            [*command, "-m", "tests.standin.differential.worker"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
        )
        self.rest = b""

    def end(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()
        self.errors.close()

    def _lines(self) -> Iterator[dict[str, Any] | None]:
        """Yield what it says, and None where it says nothing for too long."""
        assert self.process.stdout
        while True:
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", 1)
                if line.startswith(b"{"):
                    yield json.loads(line)
            if not select.select([self.process.stdout], [], [], LONGEST_SECONDS)[0]:
                yield None
                continue
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                msg = f"the worker ended: {self._last_error(0)}"
                raise RuntimeError(msg)
            self.rest += more

    def _last_error(self, since: int) -> str:
        self.errors.seek(since)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        telling = [line for line in lines if any(word in line for word in TELLING)]
        return (telling or lines or [""])[-1][:160]

    def run(self, order: dict[str, Any]) -> dict[int, Result]:
        """Run a batch; return the results of the programs that were begun."""
        assert self.process.stdin
        before = self.errors.seek(0, os.SEEK_END)
        self.process.stdin.write((json.dumps(order) + "\n").encode())
        self.process.stdin.flush()
        results: dict[int, Result] = {}
        child, begun, is_hung = 0, -1, False
        for line in self._lines():
            if line is None:
                is_hung = True
                os.kill(child, signal.SIGKILL)
            elif "pid" in line:
                child = line["pid"]
            elif "begin" in line:
                begun = line["begin"]
            elif "end" in line:
                found = line["end"]
                said = found["problem"]
                if "misuse" in said:
                    said += f": {self._last_error(before)}"
                results[begun] = Result(said, found["refused"], found["left"])
                begun = -1
            elif "exit" in line:
                if begun >= 0:
                    code = line["exit"]
                    end = "it hangs" if is_hung else f"it ends with {name_of(code)}"
                    results[begun] = Result(f"{end}; {self._last_error(before)}")
                break
        return results


def name_of(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"code {code}"


class Runner:
    """Runs programs of one job."""

    def __init__(self) -> None:
        self.workers: dict[Setting, Worker] = {}

    def end(self) -> None:
        for worker in self.workers.values():
            worker.end()

    def side(
        self, mode: str, setting: Setting, seeds: list[int], skip: dict[int, list[int]]
    ) -> dict[int, Result]:
        """Run programs of one setting, each once, in few processes."""
        if setting not in self.workers:
            self.workers[setting] = Worker(setting)
        results: dict[int, Result] = {}
        while rest := [seed for seed in seeds if seed not in results]:
            # What is from before gmlake.enable() is there in a new process only.
            if mode == "gmlake":
                late = [each for each in rest if draw(each).ops[0].name != "enable"]
                rest = late[:1] or rest
            order = {"mode": mode, "seeds": rest, "skip": skip}
            found = self.workers[setting].run(order)
            if not found:
                msg = "a batch ended before its first program"
                raise RuntimeError(msg)
            results |= found
        return results

    def compare(self, seeds: list[int], setting: Setting) -> list[Difference]:
        """Run programs of one setting under both sides; return those that differ."""
        own = setting.own
        theirs = {} if own else self.side("torch", setting, seeds, {})
        skip = {seed: found.refused for seed, found in theirs.items()}
        ours = self.side("gmlake", setting, seeds, skip)
        differences = []
        for seed in seeds:
            what = judge(theirs.get(seed, Result()), ours[seed], own=own)
            if what:
                differences.append(Difference(seed, kind_of(seed), what))
        return differences


def judge(theirs: Result, ours: Result, *, own: bool) -> str:
    """Return what differs, or nothing."""
    if theirs.problem:
        return f"PyTorch itself: {theirs.problem}"
    if ours.problem:
        return ours.problem
    early = [index for index in ours.refused if index not in theirs.refused]
    if early and not own:
        return f"step {early[0]}: memory is refused that PyTorch has"
    if ours.left > theirs.left:
        return f"{ours.left - theirs.left} bytes stay reserved"
    return ""


def batches(seeds: Iterable[int]) -> Iterator[tuple[Setting, list[int]]]:
    """Group seeds by what their processes are started with."""
    groups: dict[Setting, list[int]] = {}
    for seed in seeds:
        setting = draw(seed).setting
        group = groups.setdefault(setting, [])
        group.append(seed)
        if len(group) == BATCH:
            yield setting, groups.pop(setting)
    yield from groups.items()


class Search:
    """Shares the batches among jobs, and collects what differs."""

    def __init__(self, work: Iterator[tuple[Setting, list[int]]]) -> None:
        self.work, self.lock = work, threading.Lock()
        self.differences: list[Difference] = []
        self.done = 0
        self.kinds: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.began = time.monotonic()

    def job(self) -> None:
        """Take batches until none is left."""
        runner = Runner()
        try:
            while not self.errors:
                with self.lock:
                    setting, seeds = next(self.work, (None, []))
                if setting is None:
                    break
                found = [
                    self._alone(runner, each, seeds) for each in runner.compare(seeds, setting)
                ]
                with self.lock:
                    self._note(seeds, found)
        except BaseException as error:  # noqa: BLE001
            self.errors.append(error)
        finally:
            runner.end()

    def _alone(self, runner: Runner, found: Difference, seeds: list[int]) -> Difference:
        """Run a program that differs by itself; if it is right there, others belong to it."""
        if sum(each.kind == found.kind for each in self.differences) >= MOST_ALONE:
            return found
        again = runner.compare([found.seed], draw(found.seed).setting)
        if again:
            return again[0]
        return Difference(
            found.seed, found.kind, found.what, tuple(seeds[: seeds.index(found.seed)])
        )

    def _note(self, seeds: list[int], found: list[Difference]) -> None:
        self.done += len(seeds)
        self.kinds.update(kind_of(seed) for seed in seeds)
        self.differences += found
        for each in found:
            print(each, flush=True)
        rate = self.done / (time.monotonic() - self.began)
        if sys.stderr.isatty() or self.done % 500 < len(seeds):
            line = f"{self.done} programs, {len(self.differences)} differ, {rate:.1f} a second"
            print(line, file=sys.stderr, flush=True)


def run(seeds: Iterable[int], jobs: int) -> Search:
    """Run programs in so many processes at a time."""
    search = Search(batches(seeds))
    threads = [threading.Thread(target=search.job) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if search.errors:
        raise search.errors[0]
    return search


def run_only(seeds: list[int], *, is_verbose: bool) -> int:
    """Run these programs in one process, and report the last."""
    program = draw(seeds[-1])
    if is_verbose:
        print(f"seed {program.seed}, {program.kind}, {program.setting}")
        for index, op in enumerate(program.ops):
            print(f"{index:4} {op}")
    runner = Runner()
    found = [each for each in runner.compare(seeds, program.setting) if each.seed == seeds[-1]]
    runner.end()
    for each in found:
        print(each)
    print(f"1 programs, {len(found)} differ")
    return int(bool(found))


def main() -> int:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    if arguments.only:
        seeds = [int(word) for word in arguments.only.split(",")]
        return run_only(seeds, is_verbose=arguments.verbose)
    kinds = arguments.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"there is no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    search = run(choose(arguments.seed, arguments.programs, kinds), arguments.jobs)
    print(f"{search.done} programs, {len(search.differences)} differ")
    return int(bool(search.differences))


if __name__ == "__main__":
    sys.exit(main())
