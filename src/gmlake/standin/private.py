"""The private parts of PyTorch that the stand-in uses, beside `gmlake.pytorch.compat`."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils import _device

PARTS: Final[dict[str, str]] = {
    "utils._device._device_constructors": "a default device is not that of what forecast shadows",
    "testing._internal.distributed.fake_pg.FakeStore": "one rank of many cannot be forecast",
}
"""The features that break without each part, by its path below `torch`."""


def list_constructors() -> None:
    """Have PyTorch list the functions that a default device applies to, as they are now.

    It does so once, by identity, and what replaces one of them later is not in the list.
    """
    getattr(_device, "_device_constructors", list)()


def fake_store() -> Any:
    """Return a store without other processes, and have PyTorch know the backend "fake"."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    return FakeStore()


def leave_shapes_unchecked() -> None:
    """Have PyTorch not compare what ranks sent each other about shapes, which is nothing."""
    modules: tuple[Any, ...] = (torch.distributed.utils, torch.nn.parallel.distributed)
    for module in modules:
        if hasattr(module, "_verify_param_shape_across_processes"):
            module._verify_param_shape_across_processes = _nothing


def _nothing(*_: object, **__: object) -> None:
    pass
