"""Runs what only gmlake has: elastic tensors, threads that ask at once, a neighbour process."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from tests.standin.differential.machine import MIB, STRIP, Arena, Difference, Machine, bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.differential.programs import Op, Program

LOOKED_AT: Final = 96  # strips of an elastic tensor as large as the device
CHUNK: Final = 128 * MIB  # the largest on a shared device; a block may pin one at either end
KEPT_FREE: Final = 512 * MIB  # 256 MiB of a shared device, and what CUDA takes
SLACK: Final = 64 * MIB


@dataclass
class Cache:
    """An elastic tensor whose rows are 1 MiB. tags: of the strips that it has, by their rows."""

    elastic: Any
    stream: int
    step: int
    region: str | None
    keep: int = 0
    gives: bool = False
    pause: float = 0
    tags: dict[int, int] = field(default_factory=dict)

    def trim(self, rows: int) -> None:
        """Forget the strips behind the rows that stay."""
        self.tags = {row: tag for row, tag in self.tags.items() if row < rows}

    def give(self, rows: int) -> int:
        """Give the rows that are asked for, but not those that are kept."""
        if self.pause:
            time.sleep(self.pause)
        stay = max(rows, self.keep)
        self.trim(stay)
        return stay

    def givable(self) -> int:
        """Return how many bytes it would give."""
        return max(0, int(self.elastic.rows) - self.keep) * MIB if self.gives else 0


class Own(Machine):
    """Runs programs that PyTorch alone cannot run; the model says what is right."""

    def __init__(self, program: Program, arena: Arena, **options: Any) -> None:
        super().__init__(program, arena, **options)
        self.caches: dict[int, Cache] = {}
        self.settings: dict[str, str] = {}
        self.neighbour: Neighbour | None = None
        self.others = 0

    def step(self, op: Op) -> None:
        """Take a step here or in the neighbour."""
        if op.where == "n":
            assert self.neighbour
            self.neighbour.tell(self.index, self.pinned())
            self.others = self.neighbour.pinned
        else:
            super().step(op)

    def do_enable(self) -> None:
        self.gmlake.enable(**self.settings)
        self.enabled = True

    def pinned(self) -> int:
        """Return at most how much of the device this process does not give to others."""
        sizes = [-(-each.untyped_storage().size() // CHUNK) + 1 for each in self.tensors.values()]
        rows = [int(each.elastic.rows) * MIB * 33 // 32 + CHUNK for each in self.caches.values()]
        return int(sum(sizes) * CHUNK + sum(rows))

    def _request(self, size: int, device: Any) -> torch.Tensor | None:
        """Be refused only where there is not enough, counting what all can give."""
        made = super()._request(size, device)
        if made is None:
            self._must_not(size)
        return made

    def _must_not(self, size: int, askers: int = 1) -> None:
        givable = sum(each.givable() for each in self.caches.values() if not self._sleeps(each))
        if givable >= askers * size + SLACK:
            msg = f"{size} bytes are refused, {givable} could be given"
            raise Difference(msg)
        rest = self.program.setting.capacity - self.pinned() - self.others - KEPT_FREE
        if self.program.setting.neighbour and rest > size:
            msg = f"{size} bytes are refused, both processes have at least {rest} idle"
            raise Difference(msg)

    def _sleeps(self, cache: Cache) -> bool:
        return cache.region in self.asleep

    def do_elastic(self, cache: int, stream: int, region: str | None, backup: str | None) -> None:
        rows = self.program.setting.capacity // MIB
        with self.on(stream):
            if region is None:
                made = self.gmlake.elastic((rows, MIB), torch.uint8)
            else:
                with self.gmlake.region(f"{region} of {self.program.seed}", backup=backup):
                    made = self.gmlake.elastic((rows, MIB), torch.uint8)
        step = max(2, (128 if region else rows) // LOOKED_AT)
        self.caches[cache] = Cache(made, stream, step, region)

    def do_rows(self, cache: int, rows: int) -> None:
        found = self.caches[cache]
        before = found.elastic.rows
        with self.on(found.stream):
            try:
                found.elastic.resize(rows)
            except torch.OutOfMemoryError:
                if found.elastic.rows != before:
                    msg = f"{before} rows became {found.elastic.rows} by a refusal"
                    raise Difference(msg) from None
                gives, found.gives = found.gives, False
                self._must_not((rows - before) * MIB)
                found.gives = gives
                return
        found.trim(rows)

    def do_fill(self, cache: int, keep: int, leave: int) -> None:
        found = self.caches[cache]
        found.keep, found.gives = keep, True
        with self.on(found.stream):
            found.elastic.fill(found.give, leave=leave)
        found.trim(found.elastic.rows)

    def do_write_rows(self, cache: int, first: int, last: int, tag: int) -> None:
        """Write the strips of the rows between two hundredths."""
        found = self.caches[cache]
        rows = found.elastic.rows
        with self.on(found.stream):
            for row in range(0, rows, found.step):
                if first * rows <= row * 100 < last * rows:
                    number, source = self.arena.slot()
                    self.arena.numbers[number] = bits(tag, row % 64)
                    found.elastic.tensor[row, :STRIP].copy_(source, non_blocking=True)
                    found.tags[row] = tag

    def do_read_rows(self, cache: int, stream: int) -> None:
        found = self.caches[cache]
        by, own = self.streams[stream], self.streams[found.stream]
        by.wait_stream(own)
        with self.on(stream):
            for row, tag in found.tags.items():
                number, target = self.arena.slot()
                target.copy_(found.elastic.tensor[row, :STRIP], non_blocking=True)
                self.reads.append((self.index, number, tag, row % 64))
        own.wait_stream(by)

    def do_close(self, cache: int) -> None:
        self.caches.pop(cache).elastic.close()

    def do_forget_rows(self, cache: int) -> None:
        """Expect nothing of rows whose region has no backup."""
        self.caches[cache].tags.clear()

    def do_both(self, cache: int, size: int, rounds: int) -> None:
        """Ask in two threads at the same time, and fill up again."""
        found, lock, start = self.caches[cache], threading.Lock(), threading.Barrier(2)
        refused: list[int] = []

        def work() -> None:
            start.wait()
            for _ in range(rounds):
                try:
                    made = torch.empty(size, dtype=torch.uint8, device="cuda")
                except torch.OutOfMemoryError:
                    refused.append(found.givable())
                    continue
                del made
                torch.cuda.empty_cache()
                with lock:
                    found.elastic.fill(found.give)

        found.pause = 0.003  # so that the other thread asks meanwhile; any order is right
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.pause = 0
        found.trim(found.elastic.rows)
        if any(rest >= 2 * size + SLACK for rest in refused):
            msg = f"{size} bytes are refused to a thread, {max(refused)} could be given"
            raise Difference(msg)

    def _compare(self) -> None:
        if self.neighbour:
            self.neighbour.tell(-1, 0)
        super()._compare()

    def _clean(self) -> None:
        for each in self.caches.values():
            each.elastic.close()
        self.caches.clear()
        super()._clean()

    def answer(self, index: int, others: int) -> None:
        """Take a step that the main process asks for; -1: compare what was read."""
        self.others = others
        if index < 0:
            self._compare()
        else:
            self.index = index
            op = self.program.ops[index]
            getattr(self, f"do_{op.name}")(**op.values)


class Neighbour:
    """A second process on the device, forked before this one uses CUDA."""

    def __init__(self, make: Callable[[], Own]) -> None:
        """Fork it. It makes its machine itself."""
        here, self.write = os.pipe()
        self.read, there = os.pipe()
        self.pinned = 0
        self.child = os.fork()
        if not self.child:
            os.close(self.write)
            os.close(self.read)
            code = 1
            try:
                self._serve(make(), here, there)
                code = 0
            finally:
                os._exit(code)
        os.close(here)
        os.close(there)
        self.answers = os.fdopen(self.read)

    @staticmethod
    def _serve(machine: Own, here: int, there: int) -> None:
        with os.fdopen(here) as orders:
            for line in orders:
                index, others = json.loads(line)
                problem = ""
                try:
                    machine.answer(index, others)
                except Difference as error:
                    problem = str(error)
                except Exception as error:  # noqa: BLE001
                    problem = f"{type(error).__name__}: {error}"[:200]
                os.write(there, (json.dumps([problem, machine.pinned()]) + "\n").encode())

    def tell(self, index: int, pinned: int) -> None:
        """Let it take a step; raise its problem here."""
        os.write(self.write, (json.dumps([index, pinned]) + "\n").encode())
        line = self.answers.readline()
        if not line:
            _, status = os.waitpid(self.child, 0)
            msg = f"the neighbour ended with {os.waitstatus_to_exitcode(status)}"
            raise Difference(msg)
        problem, self.pinned = json.loads(line)
        if problem:
            msg = f"in the neighbour: {problem}"
            raise Difference(msg)
