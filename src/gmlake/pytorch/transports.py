"""Finding tensors that transports cannot register in one piece, where they are sent."""

# mypy: allow-untyped-calls

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from gmlake.errors import GmlakeWarning
from gmlake.pytorch import compat
from gmlake.pytorch.exporting import is_exportable
from gmlake.snapshots.sites import own_frame
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

_SENDERS: Final = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")
"""Namespaces of PyTorch's operators that hand tensors to a transport."""

_NO_LINE: Final = "a line that is not known"
_MOST_EVENTS: Final = 1  # what is live has its line without any


@dataclass(frozen=True)
class SentView:
    """A tensor in several physical allocations that was sent.

    operator: which sent it, as "c10d.allreduce_". sent, made: the lines of the user's that sent and
    allocated it, "file:line in function()"; "" where none is known. size_bytes: of its storage.
    """

    operator: str
    sent: str
    made: str
    size_bytes: int

    def __str__(self) -> str:
        """Say what and where in one line, and what to do."""
        return (
            f"{self.operator} at {self.sent or _NO_LINE} sends a tensor of "
            f"{format_size(self.size_bytes)}, made at {self.made or _NO_LINE}, that lies in "
            "several physical allocations: transports that register memory may reject or copy it; "
            "make it inside of gmlake.exportable()"
        )


class _Watch(compat.DispatchMode):
    """Looks at what each operator of a sender is given."""

    def __init__(self, found: list[SentView]) -> None:
        super().__init__()
        self._found = found
        self._said: set[tuple[str, str, str]] = set()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (torch has it untyped)
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Look, and go on."""
        if func.namespace in _SENDERS:
            for each in _tensors((*args, *(kwargs or {}).values())):
                if each.is_cuda and not is_exportable(each):
                    self._tell(str(func).removesuffix(".default"), each)
        return func(*args, **(kwargs or {}))

    def _tell(self, operator: str, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        seen = SentView(operator, _sent_at(), _made_at(storage.data_ptr()), storage.nbytes())
        key = (seen.operator, seen.sent, seen.made)
        if key not in self._said:
            self._said.add(key)
            self._found.append(seen)
            warnings.warn(str(seen), GmlakeWarning, stacklevel=2)


@contextmanager
def watch_transports() -> Iterator[list[SentView]]:
    """Say of each line that hands a stitched tensor to a collective which tensor it was.

        with gmlake.watch_transports() as found:
            train_step()

    Inside, every operator of torch.distributed and of symmetric memory that this thread or its
    backward passes run is looked at. A tensor that lies in several physical allocations is put into
    `found` and said by a GmlakeWarning, once for each pair of lines: NCCL's registered buffers and
    RDMA want one allocation. Without registration nothing is wrong with it.

    It is for looking, not for every step: each operator costs some microseconds more inside, and
    PyTorch keeps the line of each allocation, unless it does already. What was allocated before has
    no line; in full mode none has.
    """
    torch.cuda.init()
    keeps_lines = not compat.is_recording_history()
    if keeps_lines:
        compat.record_history(_MOST_EVENTS)
    found: list[SentView] = []
    try:
        with _Watch(found):
            yield found
    finally:
        if keeps_lines:
            compat.stop_history()


def _tensors(given: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among an operator's arguments, also those of lists in lists."""
    for each in given:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)


def _sent_at() -> str:
    """Return the line of the user's that is running; "" where none is."""
    return _own_line(_running(sys._getframe(1)))  # noqa: SLF001 (a traceback would cost more)


def _running(frame: FrameType | None) -> Iterator[tuple[str, str, int]]:
    while frame is not None:
        yield frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _made_at(address: int) -> str:
    """Return the line of the user's that allocated a block; "" where PyTorch knows none."""
    for segment in compat.memory_snapshot()["segments"]:
        if 0 <= address - segment["address"] < segment["total_size"]:
            for block in segment["blocks"]:
                if block["address"] == address:
                    frames = block.get("frames", ())
                    return _own_line(
                        (each["name"], each["filename"], each["line"]) for each in frames
                    )
    return ""


def _own_line(frames: Iterable[tuple[str, str, int]]) -> str:
    """Return the innermost of (function, file, line) that is the user's own; "" where none is."""
    shown = (f"{name}  {file}:{line}" for name, file, line in frames if file != __file__)
    function, _, line = own_frame(shown).rpartition("  ")
    return f"{line} in {function}()" if function.isidentifier() else line
