"""What cuDNN's convolutions ask PyTorch's allocator for beside their results.

    PYTHONPATH=benchmarks python -m gpu.workspaces [--write]

Every convolution of the torchvision models in forecast/programs, with the batch of the program,
forward and backward, each in three types and both orders of memory: the sizes of what is allocated
and freed within the call. That is the workspace of the engine that cuDNN's heuristics choose.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls
# mypy: disable-error-code="import-not-found, attr-defined, unused-ignore"

# What the allocator did has private names only.
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torchvision import models

import machine

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = {
    "vgg16": (models.vgg16, 128),
    "convnext_small": (models.convnext_small, 128),
    "mnasnet1_0": (models.mnasnet1_0, 48),
    "mobilenet_v3_large": (models.mobilenet_v3_large, 256),
    "regnet_y_8gf": (models.regnet_y_8gf, 128),
    "resnet50": (models.resnet50, 192),
    "vit_b_16": (models.vit_b_16, 256),
}
"""And the batch of each program."""

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def convolutions(make: Callable[..., nn.Module], batch: int) -> dict[tuple[Any, ...], None]:
    """Return the different convolutions of a model: shapes and how they are applied."""
    found: dict[tuple[Any, ...], None] = {}

    def note(layer: nn.Conv2d, given: tuple[torch.Tensor, ...], _: object) -> None:
        shapes = (tuple(given[0].shape), tuple(layer.weight.shape))
        how = (layer.stride, layer.padding, layer.dilation, layer.groups)
        found[shapes + how] = None

    model = make().to("meta")
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(note)
    model(torch.empty(batch, 3, 224, 224, device="meta"))
    return found


def allocated(work: Callable[[], Any]) -> list[int]:
    """Return the sizes that a call allocated and freed again."""
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(max_entries=1000, context=None)
    kept = work()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    made = {one["addr"]: one["size"] for one in events if one["action"] == "alloc"}
    freed = [one["addr"] for one in events if one["action"].startswith("free_")]
    del kept
    return sorted(made[address] for address in set(freed) if address in made)


Shape = tuple[int, ...]


def measure(
    shape: Shape, weight: Shape, how: tuple[Any, ...], kind: str, layout: str
) -> dict[str, Any]:
    """Return the workspaces of one convolution."""
    order = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    stride, padding, dilation, groups = how
    given = torch.empty(shape, dtype=TYPES[kind], device="cuda").to(memory_format=order)
    kernel = torch.empty(weight, dtype=TYPES[kind], device="cuda").to(memory_format=order)
    shared = (list(stride), list(padding), list(dilation), False, [0, 0], groups)
    result = torch.ops.aten.convolution(given, kernel, None, *shared)

    def backward(*wanted: bool) -> tuple[torch.Tensor, ...]:
        made: tuple[torch.Tensor, ...] = torch.ops.aten.convolution_backward(
            result, given, kernel, None, *shared, [*wanted, False]
        )
        return made

    calls: dict[str, Callable[[], Any]] = {
        "forward": lambda: torch.ops.aten.convolution(given, kernel, None, *shared),
        "data": lambda: backward(True, False),  # noqa: FBT003 (PyTorch's own form)
        "weights": lambda: backward(False, True),  # noqa: FBT003
    }
    for call in calls.values():
        call()  # engines are chosen at the first
    return {name: allocated(call) for name, call in calls.items()} | {
        "shape": list(shape),
        "weight": list(weight),
        "result": list(result.shape),
        "stride": list(stride),
        "padding": list(padding),
        "groups": groups,
        "type": kind,
        "layout": layout,
    }


def main() -> None:
    """Measure every convolution in every type and layout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--write", action="store_true", help="keep it as results/conv_workspaces.json"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    options = parser.parse_args()
    rows = []
    for name, (make, batch) in MODELS.items():
        for shape, weight, *how in convolutions(make, batch):
            for kind in TYPES:
                for layout in ("nchw", "nhwc"):
                    try:
                        row = measure(shape, weight, tuple(how), kind, layout)
                    except RuntimeError as error:
                        row = {"shape": shape, "weight": weight, "error": str(error)[:200]}
                    rows.append({"model": name, "batch": batch, **row})
        print(name, len(rows), file=sys.stderr)
    figures = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "rows": rows,
    }
    if options.write or options.output:
        gpu = torch.cuda.get_device_name()
        print(machine.write("conv_workspaces", figures, path=options.output, gpu=gpu))


if __name__ == "__main__":
    main()
