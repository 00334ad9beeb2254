"""The private parts of PyTorch that the diagnosis uses, beside `gmlake.pytorch.compat`."""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import torch
from torch.utils import _python_dispatch

_C: Final[Any] = torch._C

PARTS: Final[dict[str, str]] = {
    "_C._autograd._get_current_graph_task_keep_graph": "it sees no retained graph",
    "utils._python_dispatch.TorchDispatchMode": "it sees no operators",
    "utils._python_dispatch._get_current_dispatch_mode_stack": "it sees no operators",
    "utils._python_dispatch._pop_mode": "it sees no operators",
    "utils._python_dispatch._push_mode": "it sees no operators",
    "utils._python_dispatch._disable_current_modes": "it would see itself",
    "_C._dispatch_has_kernel_for_dispatch_key": "it counts operators twice",
    "_C._dynamo.eval_frame": "torch.compile() compiles what it puts in",
}
"""The features that break without each part, by its path below `torch`."""

is_graph_kept: Final[Callable[[], bool]] = getattr(
    _C._autograd, "_get_current_graph_task_keep_graph", lambda: False
)
"""Return whether the backward pass that this thread is in keeps its graph for another one."""

DispatchMode = _python_dispatch.TorchDispatchMode
dispatch_modes: Final = _python_dispatch._get_current_dispatch_mode_stack
push_dispatch_mode: Final = _python_dispatch._push_mode
pop_dispatch_mode: Final = _python_dispatch._pop_mode
without_dispatch_modes: Final = _python_dispatch._disable_current_modes


def is_composite(operator: Any) -> bool:  # noqa: ANN401
    """Whether an operator is made of others."""
    key = _C.DispatchKey.CompositeImplicitAutograd
    return bool(_C._dispatch_has_kernel_for_dispatch_key(operator.name(), key))


def left_uncompiled(function: Any) -> None:  # noqa: ANN401
    """Keep torch.compile() from compiling a function and its callees.

    PyTorch's own wrapper for this costs more than a small operator.
    """
    with suppress(ImportError, AttributeError):
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)
