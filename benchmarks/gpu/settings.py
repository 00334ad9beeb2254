"""What is compared: allocators, and programs whose steps never repeat; needs no PyTorch."""

from __future__ import annotations

import os
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parent.parent
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")

# What PYTORCH_CUDA_ALLOC_CONF has to be for each.
ALLOCATORS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
    "gmlake": "",
}

STEPS = 60
STEPS_OF = {"generate": 300}
"""Steps unless said otherwise, and programs that take others."""

# Those of gpu.programs, with what each does.
PROGRAMS = {
    "llama-1b": "a Llama of 1.1 billion parameters, all trained, lengths vary",
    "llama-1b-checkpoint": "the same, activations computed twice",
    "llama-3b": "a Llama of 3 billion parameters, half the batch",
    "llama-3b-checkpoint": "a Llama of 3 billion parameters, activations computed twice",
    "lora": "adapters of a Llama of 1.1 billion parameters, lengths vary",
    "moe": "a mixture of experts of 1 billion parameters, shares of the tokens vary",
    "convnet": "ResNet-50, heights and widths vary",
    "generate": "text generation, keys and values grow token by token",
    "fsdp2": "a Llama of 2.2 billion parameters divided among processes",
}

# Those of gpu.taking_turns, with what each does.
TURNS = {
    "llama-1b": "a Llama of 1.1 billion parameters, all trained, lengths vary",
    "llama-1b-checkpoint": "the same, activations computed twice",
    "llama-3b-checkpoint": "a Llama of 3 billion parameters, activations computed twice",
    "lora": "adapters of twelve layers of the Llama of 1.1 billion parameters, lengths vary",
    "moe": "half of the mixture of experts, shares of the tokens vary",
    "convnet": "ResNet-50, heights and widths vary",
    "generate": "text generation, keys and values grow token by token",
    "launch-bound": "a Llama of 22 narrow layers, whose kernels are shorter than their launches",
}

# Those of gpu.lengthening, with what each does.
FRONTIERS = {
    "dense": "a Llama of 1.1 billion parameters, all trained",
    "moe": "a mixture of experts of 1 billion parameters, all trained",
    "fsdp2": "a Llama of 2.2 billion parameters divided among two processes",
}


def environment(allocator: str) -> dict[str, str]:
    """Return what a run sees: its allocator's settings, and a deterministic cuBLAS."""
    return environment_with(ALLOCATORS[allocator])


def environment_with(setting: str) -> dict[str, str]:
    """Return the same with that as PYTORCH_CUDA_ALLOC_CONF, unless it is empty."""
    kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
    paths = [str(_BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": setting} if setting else {}
    return {
        **kept,
        **settings,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
