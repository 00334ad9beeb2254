"""Measures a test, in the process that runs it, and fails it where it needs more than it may."""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pytest
import torch

from gmlake.budgets.baselines import read_baseline
from gmlake.budgets.found import Found, convolves, largest, lines_of, too_much, with_lines
from gmlake.budgets.wishes import ALLOCATORS, Wish, wish_of
from gmlake.pytorch import compat
from gmlake.replaying import replay_trace
from gmlake.snapshots.queries import Held, query
from gmlake.snapshots.whole import Snapshot, snapshot
from gmlake.standin import control
from gmlake.units import format_size, parse_size


class Measuring:
    """A plugin of pytest that measures each marked test, from its setup to its teardown.

    orders: "baseline", a file; "is_all", whether tests without marks are measured, too. slack: by
    which share of its baseline a test may exceed it, if not by the usual one. place: the rank, and
    how many there are.
    """

    def __init__(self, config: pytest.Config, orders: Mapping[str, Any], *slack: float) -> None:
        self._baseline = read_baseline(orders["baseline"])
        self._root = config.rootpath
        self._slack, self._is_all = slack, orders["is_all"]
        self.place = (0, 1)
        self._wish: Wish | None = None
        self._found: Found | None = None
        self._has_passed = False
        self._held: dict[int, int] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        wish = wish_of(item, is_all=self._is_all)
        self._wish = wish if isinstance(wish, Wish) else None
        self._found, self._has_passed = None, False
        if self._wish is not None:
            self._begin()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        if self._wish is None:
            return (yield)
        try:
            result = yield
        finally:
            self._found = self._measured(self._wish)
        known, wish = self._baseline.get(item.nodeid), self._wish
        if said := too_much(self._found, known, wish.limit, wish.allocator, *self._slack):
            pytest.fail(f"the test {said}", pytrace=False)
        self._has_passed = True
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if self._found is not None and call.when == "call":
            report.gmlake = asdict(self._found)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        try:
            if self._has_passed and self._wish is not None and self._wish.leaks is not None:
                getattr(item, "funcargs", {}).clear()  # the values of fixtures, kept until later
                self._find_leaks(self._wish.leaks)
        finally:
            if self._wish is not None and torch.cuda.is_initialized():
                compat.stop_history()
        return result

    def _begin(self) -> None:
        """Record from now on, or from the start of CUDA on; what is held already does not count."""
        self._held = {}
        if torch.cuda.is_initialized():
            _tidy()
            torch.cuda.empty_cache()
            for device in range(torch.cuda.device_count()):
                self._held[device] = torch.cuda.memory_allocated(device)
                torch.cuda.reset_peak_memory_stats(device)
        compat.when_cuda_starts(compat.record_history)

    def _measured(self, wish: Wish) -> Found:
        """Return what the test needed on the device of which it needed most."""
        seen = snapshot() if torch.cuda.is_initialized() else Snapshot()
        if not seen.devices:
            return Found(0, 0, "", {}, *self.place)
        held = self._most(seen, "peak")
        reserved = torch.cuda.max_memory_reserved(held.device)
        if policy := ALLOCATORS.get(wish.allocator):
            (replayed,) = replay_trace(seen[held.device].trace, [policy]).results
            reserved = replayed.peak_reserved_bytes
        lines, name = lines_of(held, self._root), torch.cuda.get_device_name(held.device)
        is_open = control.is_active() and convolves(seen)
        return Found(self._bytes(held), reserved, name, lines, *self.place, is_open)

    def _most(self, seen: Snapshot, at: str) -> Held:
        return max(query(seen, at, "owner").answers, key=self._bytes)

    def _bytes(self, held: Held) -> int:
        return held.state.live_bytes - self._held.get(held.device, 0)

    def _find_leaks(self, limit: str | int) -> None:
        """Fail if the test left more behind than it may."""
        _tidy()
        seen = snapshot() if torch.cuda.is_initialized() else Snapshot()
        if not seen.devices:
            return
        held = self._most(seen, "end")
        if self._bytes(held) > parse_size(limit):
            said = f"{format_size(self._bytes(held))} of GPU memory are still held after the test"
            lines = largest(lines_of(held, self._root))
            pytest.fail(with_lines(f"{said}; its limit is {limit}", lines), pytrace=False)


def _tidy() -> None:
    """Free what nobody has, and what PyTorch keeps for libraries."""
    gc.collect()
    compat.clear_workspaces()
