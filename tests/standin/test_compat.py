"""The private parts of PyTorch that gmlake uses are there, and each is one that gmlake uses."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from gmlake.pytorch import compat, versions
from gmlake.standin import private

PARTS = compat.PARTS | private.PARTS
OPTIONAL = {"cuda._device_count_nvml", "_GLOBAL_DEVICE_CONTEXT"}  # looked for at each use


def find(path: str) -> Any:
    """Return a part of torch by its path, modules that nobody has imported included."""
    found: Any = torch
    name = "torch"
    for part in path.split("."):
        name = f"{name}.{part}"
        found = getattr(found, part) if hasattr(found, part) else import_module(name)
    return found


@pytest.mark.parametrize("path", sorted(PARTS.keys() - OPTIONAL))
def test_it_is_there(path: str) -> None:
    assert find(path) is not None, f"without torch.{path}: {PARTS[path]}"


def test_this_version_is_one_that_was_seen() -> None:
    assert torch.__version__.rpartition(".")[0] in versions.SEEN


def test_every_part_is_used() -> None:
    source = Path(compat.__file__).read_text(encoding="utf-8")
    names = {path.rpartition(".")[2] for path in compat.PARTS}
    assert {name for name in names if source.count(name) < 2} == set()
