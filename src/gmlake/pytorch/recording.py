"""Recordings: the last events of every lake, with their call sites and categories."""

# mypy: allow-untyped-calls

from __future__ import annotations

import operator
import os
import time
import weakref
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import nn

import gmlake
from gmlake import _core
from gmlake.pytorch import call_sites, categories, compat, device, lakes, native, notices
from gmlake.pytorch.call_sites import CallPaths
from gmlake.pytorch.locking import process_lock
from gmlake.pytorch.openings import Opening
from gmlake.pytorch.scopes import Observer, Tracker
from gmlake.snapshots.capture import providers
from gmlake.snapshots.whole import Snapshot, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from numpy.typing import NDArray
    from typing_extensions import Self

    from gmlake.snapshots.model import DeviceSnapshot

MOST_EVENTS: Final = 1 << 20
"""Events kept on each device by default; 56 MiB."""


class Recording:
    """The events of every lake, from gmlake.record() until stop().

    table: the places that made requests.
    """

    def __init__(self, session: _Session) -> None:
        self._session = session
        self.table = session.table

    @property
    def is_on(self) -> bool:
        """Whether events are kept."""
        return self._session.is_on

    @property
    def snapshot(self) -> Snapshot:
        """The gmlake.snapshot() of the end, with these events; until then, the current one.

        Empty if gmlake served nothing.
        """
        return self._session.snapshot or (snapshot() if self.is_on else Snapshot())

    def stop(self) -> None:
        """End the recording; its events are in `snapshot`."""
        self._session.stop()

    def __enter__(self) -> Self:
        """Return another object for the same recording, which is on; it may outlive the block."""
        return type(self)(self._session)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "on" if self.is_on else "ended"
        return (
            f"<gmlake.Recording: {state}, {len(self.table.sites()) - 1} sites, "
            f"{self.table.steps} steps>"
        )

    def _repr_html_(self) -> str | None:
        """Draw the events so far, or those at the end; None if nothing was served."""
        seen = self.snapshot
        return seen._repr_html_() if seen.devices else None


class _Session(Observer, Opening):
    """The recording that one call of gmlake.record() began."""

    def __init__(self, settings: _Settings) -> None:
        super().__init__()
        self._settings = settings
        self.table = call_sites.renew()
        self.known = categories.Known()
        self.snapshot: Snapshot | None = None  # that of the end
        self.is_on = False
        self._tracker = Tracker(self.table, _core.set_site, _note_mark, self)
        self._paths = CallPaths(self.table, self._tracker.base, _core.set_site, settings.frames)
        self._models: dict[int, weakref.ref[nn.Module]] = {}  # by id()
        self._optimizers: dict[int, tuple[weakref.ref[Any], int]] = {}  # and its state's length

    def start(self) -> None:
        """Begin. If this fails, call end()."""
        _core.torch_keep_history(self._settings.max_events)
        self.is_on = True
        self._tracker.start()
        for model in self._settings.models:
            self._tracker.name_model(model)
        for optimizer in self._settings.optimizers:
            self.optimizer_ends(optimizer)
        if self._settings.frames:
            self._paths.start()

    def stop(self) -> None:
        """Take the snapshot, and end; does nothing if it ended already."""
        self.is_ended = True
        with _turn.lock:
            if _turn.session is not self:
                return
            try:
                if self.is_on:
                    self._take_snapshot()
            finally:
                self.end()

    def _take_snapshot(self) -> None:
        self._look_again()
        self.snapshot = snapshot()

    def end(self) -> None:
        """Stop recording. May be interrupted anywhere; a further call completes it."""
        self.forget()
        _core.torch_keep_history(0)
        _turn.give(self)

    def forget(self) -> None:
        self.is_on = False
        self._paths.stop()
        self._tracker.stop()

    # ---- what is seen of the program ------------------------------------------------------------

    def model_found(self, model: nn.Module) -> None:
        """Note the addresses of its parameters and buffers."""
        key, models = id(model), self._models
        models[key] = weakref.ref(model, lambda _gone: models.pop(key, None))
        self._note(categories.PARAMETER, [*model.parameters(), *model.buffers()])

    def optimizer_begins(self, optimizer: Any) -> None:  # noqa: ANN401 (torch has it untyped)
        """Note the addresses of the gradients."""
        self._note(categories.GRADIENT, _gradients(_parameters(optimizer)))

    def optimizer_ends(self, optimizer: Any) -> None:  # noqa: ANN401
        """Note the addresses of its state, if more parameters have one than before."""
        count = len(optimizer.state)
        known = self._optimizers.get(id(optimizer))
        if known is None or known[0]() is not optimizer or known[1] != count:
            self._optimizers[id(optimizer)] = (weakref.ref(optimizer), count)
            self._note(categories.STATE, _state(optimizer))
            self._note(categories.PARAMETER, _parameters(optimizer))

    def _look_again(self) -> None:
        """Note the addresses at the end."""
        for model in filter(None, [reference() for reference in list(self._models.values())]):
            held = list(model.parameters())
            self._note(categories.PARAMETER, [*held, *model.buffers()])
            self._note(categories.GRADIENT, _gradients(held))
        for optimizer in filter(None, (known[0]() for known in self._optimizers.values())):
            self._note(categories.STATE, _state(optimizer))
            self._note(categories.PARAMETER, _parameters(optimizer))
            self._note(categories.GRADIENT, _gradients(_parameters(optimizer)))

    def _note(self, category: int, tensors: Iterable[torch.Tensor]) -> None:
        if not native.is_installed():
            return
        found: dict[int, list[int]] = defaultdict(list)
        with compat.without_torch_functions():
            for tensor in tensors:
                local = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
                if local.is_cuda:
                    with suppress(RuntimeError, NotImplementedError):  # it has no storage
                        found[local.get_device()].append(local.untyped_storage().data_ptr())
        for number, addresses in found.items():
            self.known.add(number, category, time.time_ns(), addresses)


class _Settings:
    """The arguments of gmlake.record(), checked."""

    def __init__(
        self, max_events: object, frames: object, model: object, optimizers: object
    ) -> None:
        self.max_events = _count("max_events", max_events, 1)
        depth = call_sites.MOST_FRAMES if frames is True else frames or 0
        self.frames = _count("frames", depth, 0)
        self.models = _several(model, nn.Module, "a model is a torch.nn.Module")
        self.optimizers = _several(
            optimizers, torch.optim.Optimizer, "an optimizer is a torch.optim.Optimizer"
        )


class _Turn:
    """The recording that is on: lakes keep one history."""

    def __init__(self) -> None:
        self.lock = process_lock()
        self.forget()

    def forget(self) -> None:
        """Forget all recordings, in a forked child."""
        self.session: _Session | None = None
        self.last: _Session | None = None

    def end_finished(self) -> None:
        """End a recording that is over. Raises RuntimeError if one is still on."""
        if self.session is not None and self.session.is_over:
            self.session.end()
        if self.session is not None:
            raise RuntimeError("a recording is on already; end it with gmlake.stop_recording()")

    def give(self, session: _Session) -> None:
        if self.session is session:
            self.session = None


_turn: Final = _Turn()


def record(
    max_events: int = MOST_EVENTS,
    *,
    frames: bool | int = False,
    model: nn.Module | Iterable[nn.Module] | None = None,
    optimizers: Any = None,  # noqa: ANN401 (torch has them untyped)
) -> Recording:
    """Record the events of every lake from now on, with the module and phase of each.

        with gmlake.record() as recording:
            train()
        recording.snapshot.save("memory.pickle")

    It starts at once and ends with the `with` block or stop_recording(). Meanwhile
    gmlake.snapshot() has the events so far; afterwards the recording's `snapshot` has them. A
    recording whose object was garbage-collected continues until the next one starts.

    max_events: the number of last events to keep on each device, at 56 bytes each, and at most 96
        bytes for each separate piece of memory held.
    frames: also keep the Python call path of each request that the calling thread makes through a
        function of PyTorch: the innermost 24 frames, or this many. Each call of such a function
        then costs some microseconds. Requests of the backward pass have none.
    model: one or several models whose modules are named; None: every module called from outside
        any other.
    optimizers: one or several that already have state; others are found at their first step.

    Without CUDA, nothing is recorded and a GmlakeWarning says so once; also if gmlake serves
    nothing. Raises RuntimeError if a recording is on whose object still exists, TypeError and
    ValueError for invalid arguments, and MemoryError if max_events do not fit into memory.
    """
    settings = _Settings(max_events, frames, model, optimizers)
    with _turn.lock:
        _turn.end_finished()
        session = _Session(settings)
        recording = Recording(session)
        absence = device.absence()
        if absence:
            notices.once("recording", f"gmlake.record() records nothing: {absence}")
            return recording
        _tell_of_limits()
        try:
            session.belongs_to(recording)
            _turn.session = _turn.last = session
            session.start()
            return recording  # noqa: TRY300 (an interrupt may come here)
        except BaseException:
            session.end()
            raise


def stop_recording() -> Recording | None:
    """End the current recording and return it; None if there is none."""
    with _turn.lock:
        session = _turn.session
        if session is None:
            return None
        owner = session.owner
        session.stop()
        return owner if isinstance(owner, Recording) else Recording(session)


def categories_of(seen: DeviceSnapshot) -> NDArray[np.int8]:
    """Return a category for each id of a snapshot's trace, as the last recording knows it."""
    session = _turn.last
    if session is None or not native.is_installed():
        return np.full(len(seen.lives.born), categories.UNKNOWN, np.int8)
    return categories.classify(
        seen.lives,
        seen.events,
        seen.trace.labels,
        session.table.sites(),
        session.known.of(seen.device),
    )


providers.categories = categories_of


def _tell_of_limits() -> None:
    if not gmlake.is_enabled():
        notices.once(
            "recording nothing",
            "gmlake.record() records what gmlake serves, and it serves nothing yet: call "
            "gmlake.enable() before, or run the program by `gmlake run`",
        )


def _note_mark(number: int) -> None:
    for lake in lakes.all_lakes():
        lake.note_mark(number)


def _parameters(optimizer: Any) -> list[torch.Tensor]:  # noqa: ANN401
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _gradients(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    with compat.without_torch_functions():
        return [held.grad for held in parameters if held.is_leaf and held.grad is not None]


def _state(optimizer: Any) -> list[torch.Tensor]:  # noqa: ANN401
    return [
        value
        for state in optimizer.state.values()
        if isinstance(state, dict)
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]


def _count(name: str, value: object, least: int) -> int:
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name} is {number}, but must be {least} or more")
    return number


def _several(value: Any, kind: type, text: str) -> list[Any]:  # noqa: ANN401
    """Return one thing or several as a list."""
    if value is None:
        return []
    items = [value] if isinstance(value, kind) or not hasattr(value, "__iter__") else list(value)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{text}, not {item!r}")
    return items


def _after_fork() -> None:
    """Record nothing in a child: the locks of its parent's lakes must not be touched."""
    session = _turn.session
    _turn.forget()
    if session is not None:
        session.forget()


os.register_at_fork(after_in_child=_after_fork)
