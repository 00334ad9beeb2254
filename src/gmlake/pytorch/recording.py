"""Recordings: PyTorch's history of memory, with what gmlake alone knows beside it."""

# mypy: allow-untyped-calls

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from gmlake.pytorch import compat, device, documents, notices
from gmlake.snapshots.whole import Snapshot, snapshot, snapshot_of

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_EVENTS: Final = 1 << 20
"""Events kept on each device by default."""


class Recording:
    """The memory events of this process, from gmlake.record() until stop()."""

    def __init__(self, models: list[nn.Module], optimizers: list[Any], *, is_on: bool) -> None:
        self.is_on = is_on
        self._models, self._optimizers = models, optimizers
        self._is_mine = False
        self._end = Snapshot()

    def _start(self, most_events: int, *, frames: bool) -> None:
        """Begin, once CUDA has started, unless the program keeps a history."""
        self._is_mine = self.is_on and not compat.is_recording_history()
        if self._is_mine:
            compat.record_history(most_events, frames=frames)

    @property
    def snapshot(self) -> Snapshot:
        """The memory at the end, and the events before it; until then, the current ones."""
        return snapshot() if self.is_on else self._end

    def stop(self) -> None:
        """End the recording; its events are in `snapshot`. Does nothing if it ended already."""
        if not self.is_on:
            return
        self.is_on = False
        try:
            document = documents.document()
            if document is not None:
                _name_categories(document["device_traces"], self._models, self._optimizers)
                self._end = snapshot_of(document)
        finally:
            if self._is_mine and not compat.is_in_bad_fork():
                compat.stop_history()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<gmlake.Recording: {'on' if self.is_on else 'ended'}>"

    def _repr_html_(self) -> str | None:
        """Draw the events so far, or those at the end; None if nothing was requested."""
        seen = self.snapshot
        return seen._repr_html_() if seen.devices else None


def record(
    max_events: int = MOST_EVENTS,
    *,
    frames: bool = True,
    model: nn.Module | Iterable[nn.Module] | None = None,
    optimizers: Any = None,  # noqa: ANN401 (torch has them untyped)
) -> Recording:
    """Record what this process asks PyTorch's memory for, from now on, whatever serves it.

        with gmlake.record() as recording:
            train()
        recording.snapshot.save("memory.pickle")

    It is PyTorch's own history (torch.cuda.memory._record_memory_history), with gmlake's stitched
    views, orders of streams and counters beside it. It starts at once and ends with the `with`
    block or Recording.stop(). Meanwhile gmlake.snapshot() has the events so far. A history that the
    program keeps already is used as it is, and goes on.

    max_events: the number of last events to keep on each device.
    frames: also keep the call path of each request, as Python's lines; some microseconds each.
    model, optimizers: one or several whose parameters, gradients and states are told apart at the
        end; without them, categories are inferred.

    Without CUDA, nothing is recorded and a GmlakeWarning says so once. Raises TypeError and
    ValueError for invalid arguments.
    """
    most_events = _count(max_events)
    models = _several(model, nn.Module, "a model is a torch.nn.Module")
    kind: type = torch.optim.Optimizer
    known = _several(optimizers, kind, "an optimizer is a torch.optim.Optimizer")
    absence = device.absence()
    if absence:
        notices.once("recording", f"gmlake.record() records nothing: {absence}")
    recording = Recording(models, known, is_on=not absence)
    if recording.is_on:
        compat.when_cuda_starts(lambda: recording._start(most_events, frames=frames))  # noqa: SLF001
    return recording


def _name_categories(
    traces: list[list[dict[str, Any]]], models: list[nn.Module], optimizers: list[Any]
) -> None:
    """Add an annotation, as PyTorch 2.14 has them, for each tensor whose category is known."""
    now = time.time_ns() // 1000
    with compat.without_torch_functions():
        for category, tensor in _tensors(models, optimizers):
            local = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
            if local.is_cuda:
                with suppress(RuntimeError, NotImplementedError):  # it has no storage
                    event = {"action": "annotate", "addr": local.untyped_storage().data_ptr()}
                    event |= {"size": local.untyped_storage().nbytes(), "stream": 0, "frames": []}
                    event |= {"time_us": now, "user_metadata": category}
                    traces[local.get_device()].append(event)


def _tensors(models: list[nn.Module], optimizers: list[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    parameters = [one for model in models for one in model.parameters()]
    for optimizer in optimizers:
        parameters += [one for group in optimizer.param_groups for one in group["params"]]
        for state in optimizer.state.values():
            values = state.values() if isinstance(state, dict) else ()
            yield from (("optimizer state", one) for one in values if torch.is_tensor(one))
    yield from (("parameter", buffer) for model in models for buffer in model.buffers())
    for parameter in parameters:
        yield "parameter", parameter
        if parameter.is_leaf and parameter.grad is not None:
            yield "gradient", parameter.grad


def _count(value: object) -> int:
    if not hasattr(value, "__index__"):
        raise TypeError(f"max_events is a whole number, not {value!r}")
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"max_events is {number}, but must be 1 or more")
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
