"""Processes that share a device while others of them are killed, stopped, forked and sent nonsense.

Arguments: SEED SECONDS. Prints as JSON what was wrong, and how long requests took. No kernel runs
on the stand-in, so contents are copied from and to the host.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import array
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

import gmlake
from gmlake import _core
from gmlake.standin import control
from gmlake.watching.neighbours import name_of

MIB: Final = 1 << 20
PART: Final = 16 * MIB
"""Chunks are as large: each has bytes of its own."""
EDGE: Final = 16
MOST: Final = 12
FEWEST: Final = 2
FRESH: Final = 4
"""Seconds that a process allocates at least before it is killed."""


class Kept:
    """A tensor, what its bytes are, and the stream that used it last."""

    def __init__(self, tensor: torch.Tensor, stream: torch.cuda.Stream, value: int) -> None:
        self.tensor, self.stream, self.value = tensor, stream, value
        self.fill(stream, value)

    def edges(self) -> list[torch.Tensor]:
        """Return the first bytes of each part, and the last of all."""
        flat = self.tensor.view(-1)
        return [flat[at : at + EDGE] for at in range(0, len(flat), PART)] + [flat[-EDGE:]]

    def fill(self, stream: torch.cuda.Stream, value: int) -> None:
        self.stream, self.value = stream, value
        bytes_ = torch.full((EDGE,), value, dtype=torch.uint8).pin_memory()
        with torch.cuda.stream(stream):
            for edge in self.edges():
                edge.copy_(bytes_, non_blocking=True)

    def is_wrong(self) -> bool:
        with torch.cuda.stream(self.stream):
            return not all(bool((edge.cpu() == self.value).all()) for edge in self.edges())


class Worker:
    """Allocates, checks and frees until it is told to end, by SIGTERM; tells what it has seen.

    A line a second, as it may be killed.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 (a program, not a secret)
        self.streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
        self.kept: list[Kept] = []
        self.requests = self.refused = 0
        self.longest_s = 0.0
        self.wrong: list[str] = []
        self.is_over = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.is_over = True

    def run(self) -> None:
        acts = [self.take] * 8 + [self.drop] * 6 + [self.look, self.drop_many, self.pool]
        acts += [self.sleep, self.grow, self.fork, torch.cuda.empty_cache]
        told = 0.0
        while not self.is_over:
            if time.monotonic() > told + 1:
                told = time.monotonic()
                print(json.dumps(self.seen()), flush=True)
            self.random.choice(acts)()
            time.sleep(self.random.random() / 100)  # so that the machine is not what is waited for
        while self.kept:
            self.check(self.kept.pop(), "at the end")
        torch.cuda.synchronize()
        print(json.dumps(self.seen()), flush=True)

    def seen(self) -> dict[str, Any]:
        shared = gmlake.sharing()
        return {
            "requests": self.requests,
            "refused": self.refused,
            "longest_s": self.longest_s,
            "waited_s": shared.longest_s,
            "taken_bytes": shared.taken_bytes,
            "wrong": self.wrong,
            "misuses": control.misuses(),
        }

    def check(self, kept: Kept, when: str) -> None:
        if kept.is_wrong():
            self.wrong.append(f"{kept.tensor.nbytes // MIB} MiB {when}")

    def value(self) -> int:
        return self.random.randrange(1, 256)

    def new(self, most_mib: int = 700) -> Kept | None:
        stream = self.random.choice(self.streams)
        size = self.random.choice([1, 3, 20, 64, 100, 130, 256, 500, 700])
        self.requests += 1
        began = time.perf_counter()
        try:
            with torch.cuda.stream(stream):
                made = torch.empty(min(size, most_mib) * MIB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            self.refused += 1
            self.drop_many()
            return None
        finally:
            self.longest_s = max(self.longest_s, time.perf_counter() - began)
        return Kept(made, stream, self.value())

    def take(self) -> None:
        if made := self.new():
            self.kept.append(made)

    def drop(self) -> None:
        if self.kept:
            kept = self.kept.pop(self.random.randrange(len(self.kept)))
            self.check(kept, "when it is freed")
            other = self.random.choice(self.streams)
            other.wait_stream(kept.stream)
            kept.tensor.record_stream(other)
            kept.fill(other, self.value())  # work that is queued when it is freed

    def drop_many(self) -> None:
        for _ in range(len(self.kept) // 2):
            self.drop()

    def look(self) -> None:
        for kept in self.kept:
            self.check(kept, "while it lives")

    def pool(self) -> None:
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            made = self.new(300)
        self.take()
        if made:
            self.check(made, "of a pool")

    def sleep(self) -> None:
        with gmlake.region("storm", backup="cpu"):
            made = self.new(300)
        gmlake.sleep("storm")
        self.take()
        for _ in range(200):
            with suppress(torch.OutOfMemoryError):
                gmlake.wake("storm")
                break
            self.drop_many()
            time.sleep(0.02)
        else:
            self.wrong.append("a region that never wakes")
        if made:
            self.check(made, "after sleep")

    def grow(self) -> None:
        with suppress(torch.OutOfMemoryError):
            elastic = gmlake.elastic((300, MIB), torch.uint8)
            for _ in range(3):
                rows = self.random.randrange(1, 300)
                made = Kept(elastic.resize(rows), self.streams[0], self.value())
                self.check(made, "that is elastic")
            elastic.close()

    def fork(self) -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)


# ---- around them ---------------------------------------------------------------------------------


class Running(NamedTuple):
    """A worker, and what it tells."""

    process: subprocess.Popen[str]
    told: Path

    def lines(self) -> list[str]:
        return self.told.read_text(encoding="utf-8").splitlines()


class Storm:
    """Starts and disturbs workers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 (a program, not a secret)
        self.workers: list[Running] = []
        self.counts = dict.fromkeys(("started", "killed", "stopped", "letters"), 0)
        self.ended: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    def start(self) -> None:
        self.counts["started"] += 1
        arguments = [sys.executable, __file__, "worker", str(self.random.getrandbits(30))]
        told = Path(os.environ["XDG_RUNTIME_DIR"]) / f"worker-{self.counts['started']}"
        with told.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(arguments, stdout=file, text=True)
        self.workers.append(Running(process, told))

    def run(self, seconds: float) -> None:
        acts = [self.start_one, self.end_one, self.kill_one, self.stop_one, self.stop_one]
        acts += [self.write_nonsense, self.write_nonsense]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if len(self.workers) < FEWEST:
                self.start()
            self.random.choice(acts)()
            time.sleep(self.random.random())
        while self.workers:
            self.end(self.workers.pop())

    def old_one(self) -> Running | None:
        """Take one that has lived for a while out of the list."""
        old = [each for each in self.workers if len(each.lines()) > FRESH]
        if not old:
            return None
        chosen = self.random.choice(old)
        self.workers.remove(chosen)
        return chosen

    def start_one(self) -> None:
        if len(self.workers) < MOST:
            self.start()

    def end_one(self) -> None:
        if one := self.old_one():
            self.end(one)

    def end(self, one: Running) -> None:
        one.process.send_signal(signal.SIGTERM)
        try:
            code = one.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.wrong.append("a process that does not end")
            one.process.kill()
            return
        if code and one.lines():  # it ends by the signal where it has not begun
            self.wrong.append(f"a process ended with {code}")
        self.note(one)

    def note(self, one: Running) -> None:
        """Take down what it told last; a line may have been cut off when it was killed."""
        for line in reversed(one.lines()):
            with suppress(json.JSONDecodeError):
                self.ended.append(json.loads(line))
                break
        one.told.unlink()

    def kill_one(self) -> None:
        if one := self.old_one():
            one.process.kill()
            one.process.wait()
            self.note(one)
            self.counts["killed"] += 1

    def stop_one(self) -> None:
        if self.workers:
            one = self.random.choice(self.workers).process
            one.send_signal(signal.SIGSTOP)
            time.sleep(self.random.random())
            one.send_signal(signal.SIGCONT)
            self.counts["stopped"] += 1

    def write_nonsense(self) -> None:
        """Fill the sockets of one process with letters, files and bytes that mean nothing."""
        names = addresses()
        if not names:
            return
        name, peers = self.random.choice(names), []
        with suppress(OSError), Path("/dev/null").open("rb") as file:
            files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * 3))]
            for _ in range(self.random.choice([1, 20, 400])):
                peers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                peers[-1].settimeout(0)
                peers[-1].connect(f"\0{name}")
                text = self.random.randbytes(self.random.choice([1, 8, 64, 72, 200]))
                kind = self.random.randrange(12).to_bytes(4, "little")
                for each in ([text], [kind, text[:60].ljust(60, b"\0")]):
                    peers[-1].sendmsg(each, self.random.choice([files, []]))
                    self.counts["letters"] += 1
        for peer in peers:
            peer.close()


def addresses() -> list[str]:
    """Return the names at which processes share this storm's device."""
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    mine = "@" + _core.published_name(name_of(uuid))
    lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
    return sorted({word[1:] for line in lines for word in line.split() if word.startswith(mine)})


def main() -> int:
    """Run the storm, and look at what is left."""
    if sys.argv[1] == "worker":
        gmlake.enable(share="device")
        Worker(int(sys.argv[2])).run()
        return 0
    before = addresses()
    storm = Storm(int(sys.argv[1]))
    storm.run(float(sys.argv[2]))
    free, total = torch.cuda.mem_get_info()
    found = {
        **storm.counts,
        "ended": len(storm.ended),
        "wrong": storm.wrong + [text for each in storm.ended for text in each["wrong"]],
        "misuses": sum(each["misuses"] for each in storm.ended),
        "requests": sum(each["requests"] for each in storm.ended),
        "refused": sum(each["refused"] for each in storm.ended),
        "taken_bytes": sum(each["taken_bytes"] for each in storm.ended),
        "longest_s": sorted(each["longest_s"] for each in storm.ended),
        "waited_s": sorted(each["waited_s"] for each in storm.ended),
        "free": free / total,
        "files": sorted(map(str, Path(os.environ["XDG_RUNTIME_DIR"]).glob("gmlake*"))),
        "names": sorted(set(addresses()) - set(before)),
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
