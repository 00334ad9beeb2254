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

# Those of gpu.programs.
PROGRAMS = (
    *("llama-1b", "llama-1b-checkpoint", "llama-3b", "llama-3b-checkpoint", "lora", "moe"),
    *("convnet", "generate", "fsdp2"),
)

# Those of gpu.taking_turns.
TURNS = (
    *("llama-1b", "llama-1b-checkpoint", "llama-3b-checkpoint", "lora", "moe", "convnet"),
    *("generate", "launch-bound"),
)

# Those of gpu.lengthening, with what each does.
FRONTIERS = {
    "dense": "a Llama of 1.1 billion parameters, all trained",
    "moe": "a mixture of experts of 1 billion parameters, all trained",
    "fsdp2": "a Llama of 2.2 billion parameters divided among two processes",
}


def environment(allocator: str) -> dict[str, str]:
    """Return what a run sees: its allocator's settings, and a deterministic cuBLAS."""
    kept = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
    paths = [str(_BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    setting = ALLOCATORS[allocator]
    return {
        **kept,
        **({"PYTORCH_CUDA_ALLOC_CONF": setting} if setting else {}),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "HF_HUB_OFFLINE": "1",
    }
