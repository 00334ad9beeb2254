"""gmlake.diagnose(): finds how a block of a PyTorch program used memory, and what to change."""

# mypy: allow-untyped-calls

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from torch import nn

from gmlake.diagnosis.detect import Diagnosis, choose_patterns, find_inefficiencies
from gmlake.diagnosis.operators import indices
from gmlake.diagnosis.operators.collector import Collector
from gmlake.diagnosis.operators.places import MOST_FRAMES
from gmlake.diagnosis.report import diagnosis_tables
from gmlake.pytorch import notices
from gmlake.pytorch.locking import Opening, process_lock
from gmlake.tables import Printed, Tables

if TYPE_CHECKING:
    from typing_extensions import Self

    from gmlake.diagnosis import Advice, Finding, Pattern

_ON_ALREADY: Final = "a diagnosis is on already; blocks of gmlake.diagnose() cannot be nested"


class Report(Printed):
    """The result of gmlake.diagnose(); prints as a table for each device. Empty inside the block.

    devices: the Diagnosis of each used device by its name, "cuda:0" or "cpu".
    """

    def __init__(self, settings: _Settings) -> None:
        self.devices: dict[str, Diagnosis] = {}
        self._settings = settings
        self._block: _Block | None = None

    def __enter__(self) -> Self:
        """Begin. Raises RuntimeError inside another such block, or if this one is open."""
        if self._block is not None:
            raise RuntimeError("this block has ended; call gmlake.diagnose() for another")
        settings = self._settings
        with _turn.lock:
            _turn.end_finished()
            if _turn.block is not None:
                raise RuntimeError(_ON_ALREADY)
            collector = Collector(settings.frames, indices.reader(settings.indices))
            self._block = _Block(collector)
            try:
                self._block.belongs_to(self)
                _turn.block = self._block
                collector.start(settings.models)
                return copy(self)  # which may outlive the block; `devices` is the same
            except BaseException:
                self._block.is_ended = True
                _turn.end_finished()
                raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, and diagnose the block, or the part before it failed."""
        block = self._block
        if block is None:
            return
        collector = block.collector
        block.is_ended = True
        with _turn.lock:
            _turn.end_finished()
        if collector is None:
            return
        if error is None:
            self._look_into(collector)
        else:
            with suppress(Exception):  # the block's own error says more
                self._look_into(collector)

    def _look_into(self, collector: Collector) -> None:
        traces = collector.traces(whole_program=self._settings.whole_program)
        if collector.failures:
            notices.once(
                "diagnosis",
                f"gmlake.diagnose() did not understand {collector.failures} calls, the first "
                f"because of: {collector.first_failure!r}",
            )
        for device, trace in sorted(traces.items()):
            if self._settings.takes(device):
                self.devices[device] = find_inefficiencies(trace, patterns=self._settings.patterns)

    # ---- findings -------------------------------------------------------------------------------

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The mistakes on all devices, those that cost most of their device's peak first."""
        every = [one for found in self.devices.values() for one in found.advice]
        return tuple(sorted(every, key=lambda one: -one.saving_bytes))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all devices, by what fixing them saves of their device's peak."""
        every = [one for found in self.devices.values() for one in found.findings]
        return tuple(sorted(every, key=lambda one: -one.saving_bytes))

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {"devices": {name: found.to_dict() for name, found in self.devices.items()}}

    def __repr__(self) -> str:
        """Say how much was found, and where."""
        if not self.devices:
            return "<gmlake.diagnose(): nothing seen yet>"
        return f"<gmlake.diagnose(): {len(self.findings)} findings on {', '.join(self.devices)}>"

    def _tables(self) -> Tables:
        """Render the table of each device."""
        if not self.devices:
            is_on = self._block is not None and self._block.collector is not None
            yield "nothing seen yet" if is_on else "no operator accessed any memory"
        for found in self.devices.values():
            yield from diagnosis_tables(found, show_all=self._settings.show_all)


class _Settings:
    """The arguments of gmlake.diagnose(), checked."""

    def __init__(  # noqa: PLR0913, PLR0917 (as many as it is asked for)
        self,
        whole_program: object,
        show_all: object,
        devices: object,
        model: object,
        frames: object,
        indices_choice: object,
        patterns: Iterable[str | Pattern] | None,
    ) -> None:
        self.whole_program = bool(whole_program)
        self.show_all = bool(show_all)
        self.devices = _names(devices)
        self.models = _models(model)
        self.frames = _depth(frames)
        self.indices = str(indices_choice)
        indices.reader(self.indices)
        self.patterns = choose_patterns(patterns)

    def takes(self, device: str) -> bool:
        """Return whether a device is to be looked at."""
        chosen = self.devices
        return chosen is None or device in chosen or device.split(":", maxsplit=1)[0] in chosen


def _names(devices: Any) -> frozenset[str] | None:  # noqa: ANN401
    if devices is None:
        return None
    is_one = isinstance(devices, str) or not hasattr(devices, "__iter__")
    return frozenset(map(str, [devices] if is_one else devices))


def _models(model: Any) -> list[nn.Module]:  # noqa: ANN401
    if model is None:
        return []
    found = [model] if isinstance(model, nn.Module) else list(model)
    for one in found:
        if not isinstance(one, nn.Module):
            raise TypeError(f"a model is a torch.nn.Module, not {one!r}")
    return found


def _depth(frames: Any) -> int:  # noqa: ANN401
    if not hasattr(frames, "__index__"):
        raise TypeError(f"frames is a whole number, not {frames!r}")
    depth = operator.index(frames)
    if depth < 0:
        raise ValueError(f"frames is {depth}, but must be 0 or more")
    return depth


class _Block(Opening):
    """The collector that one entry started."""

    def __init__(self, collector: Collector) -> None:
        super().__init__()
        self.collector: Collector | None = collector  # until it has stopped

    def end(self) -> None:
        """Stop recording. May be interrupted anywhere; a further call completes it."""
        if self.collector is not None:
            self.collector.stop()
        self.collector = None


class _Turn:
    """The block that is open, if any."""

    def __init__(self) -> None:
        self.lock = process_lock()
        self.block: _Block | None = None

    def end_finished(self) -> None:
        """End the block that is over. pre: the lock is held."""
        if self.block is not None and self.block.is_over:
            self.block.end()
            self.block = None


_turn: Final = _Turn()


def diagnose(  # noqa: PLR0913 (each is an option of its own)
    *,
    whole_program: bool = False,
    show_all: bool = False,
    devices: str | Iterable[str] | None = None,
    model: nn.Module | Iterable[nn.Module] | None = None,
    frames: int = MOST_FRAMES,
    indices: str = "always",
    patterns: Iterable[str | Pattern] | None = None,
) -> Report:
    """Find the ten patterns of memory inefficiency in a block of code.

        with gmlake.diagnose() as report:
            train_one_step()
        print(report)

    Every operator of PyTorch that runs in the block is seen, on CPUs, GPUs and fake tensors, with
    the bytes that it reads and writes: a slice touches its slice, an embedding the rows it was
    asked for. An object is a tensor's storage. `report.advice` names mistakes, each with its line.
    Memory that is live after the block is not a leak, unless whole_program is true; but memory that
    each round of a loop adds is reported all the same.

    show_all: also print findings not worth a change, and memory that could be offloaded.
    devices: those to look at, as "cuda", "cuda:0" or "cpu"; None: all that were used.
    model: one or several whose parameters are named; None: every module that is called from outside
        of any other.
    frames: how many frames of the program to keep for each line that is reported; 0: none.
    indices: whether indices are read, to know which rows are meant: "always"; "cpu only", as
        reading those of a GPU waits for it; or "never". An operator whose indices are not read
        counts as one that may touch all of its tensor, which can hide an inefficiency, but makes
        none up. While a CUDA graph is captured none are read.
    patterns: names of those to look for, as "early allocation"; None: all.

    Not seen: other threads than the calling one and those of autograd that it starts; kernels that
    are not operators, such as Triton kernels launched by hand, and replays of CUDA graphs;
    memory that an operator uses internally. Memory shared with NumPy and others counts as touched
    by them until it is freed. Taking an address touches the contents at that time.
    Compiled functions run without their compiler in the block.

    Raises RuntimeError inside of another such block, TypeError and ValueError for arguments that
    make no sense.
    """
    return Report(_Settings(whole_program, show_all, devices, model, frames, indices, patterns))


def _after_fork() -> None:
    """Stop recording in a child, where the block continues but the parent ends it."""
    if _turn.block is not None and _turn.block.collector is not None:
        _turn.block.collector.abandon()


os.register_at_fork(after_in_child=_after_fork)
