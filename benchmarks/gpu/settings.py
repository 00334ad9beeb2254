"""The allocators that are compared; needs no PyTorch."""

from __future__ import annotations

# What PYTORCH_CUDA_ALLOC_CONF has to be for each.
ALLOCATORS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
    "gmlake": "",
    "gmlake-pool": "",
}
