"""The private parts of PyTorch that the stand-in uses, beside `gmlake.pytorch.compat`."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils import _python_dispatch

PARTS: Final[dict[str, str]] = {
    "utils._python_dispatch._disable_current_modes": "values are not known within other modes",
    "testing._internal.distributed.fake_pg.FakeStore": "one rank of many cannot be forecast",
}
"""The features that break without each part, by its path below `torch`."""

without_dispatch_modes: Final = _python_dispatch._disable_current_modes


def fake_store() -> Any:
    """Return a store without other processes, and have PyTorch know the backend "fake"."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    return FakeStore()


def replace_shape_checks(check: Callable[..., None]) -> None:
    """Replace how PyTorch compares what ranks sent each other about shapes."""
    modules: tuple[Any, ...] = (torch.distributed.utils, torch.nn.parallel.distributed)
    for module in modules:
        if hasattr(module, "_verify_param_shape_across_processes"):
            module._verify_param_shape_across_processes = check
