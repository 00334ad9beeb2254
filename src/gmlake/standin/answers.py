"""What a program is answered where a kernel would have computed it, and notes of where it asked.

Device memory reads as zeros: a loss is 0, a norm is 0, no number is infinite, so the program goes
on. What depends on data has no rows. Weights on the CPU are left as they are, since nobody reads
them: initialising 7 billion takes minutes and their memory.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_DATA_DEPENDENT: Final = ("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere")
"""Functions whose result has as many rows as the data say."""

_LEAST_SKIPPED: Final = 1 << 18
"""Elements of a tensor on the CPU whose initialisation is worth leaving out."""

_asked: Counter[tuple[str, str, int]] = Counter()


def install() -> None:
    """Put the notes and the shortcuts into PyTorch; once, for the life of the process."""
    for name in _DATA_DEPENDENT:
        for home in (torch, torch.Tensor):
            if hasattr(home, name):
                setattr(home, name, _noted(name, getattr(home, name)))
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, _left_out(getattr(torch.nn.init, name)))


def given() -> list[dict[str, Any]]:
    """Return where the program asked for what depends on data, the most frequent first."""
    return [
        {"function": name, "file": file, "line": line, "count": count}
        for (name, file, line), count in _asked.most_common()
    ]


def _noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*arguments: Any, **more: Any) -> Any:
        if any(isinstance(each, torch.Tensor) and each.is_cuda for each in arguments):
            file, line = _caller()
            _asked[name, file, line] += 1
        return function(*arguments, **more)

    return noted


def _caller() -> tuple[str, int]:
    """Return the innermost line that is not PyTorch's."""
    inside = str(Path(torch.__file__).parent)
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _left_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an initialisation that leaves large tensors on the CPU untouched."""

    @functools.wraps(function)
    def left_out(tensor: Any, *arguments: Any, **more: Any) -> Any:
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.device.type == "cpu"
            and tensor.numel() >= _LEAST_SKIPPED
        ):
            return tensor
        return function(tensor, *arguments, **more)

    return left_out
