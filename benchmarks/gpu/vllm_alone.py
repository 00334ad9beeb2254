"""vLLM's allocator for sleeping without the rest of vLLM, from a few files of its wheel.

    unzip -d FOLDER vllm-*.whl 'vllm/device_allocator/*' 'vllm/cumem_allocator*' \
        'vllm/distributed/device_communicators/cuda_wrapper.py'
    VLLM=FOLDER

What those files import of the others is put in place: a logger, the platform, and three helpers.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def allocator() -> Any:  # noqa: ANN401 (vLLM's)
    """Return vLLM's CuMemAllocator, of the folder that VLLM names or as it is installed."""
    folder = os.environ.get("VLLM")
    if folder:
        _put_in_place(Path(folder) / "vllm")
    return importlib.import_module("vllm.device_allocator.cumem").CuMemAllocator.get_instance()


def _put_in_place(package: Path) -> None:
    platform = SimpleNamespace(
        is_cuda_alike=lambda: True, is_cuda=lambda: True, is_rocm=lambda: False
    )
    modules: dict[str, dict[str, Any]] = {
        "vllm": {"__path__": [str(package)]},
        "vllm.distributed": {"__path__": [str(package / "distributed")]},
        "vllm.distributed.device_communicators": {
            "__path__": [str(package / "distributed" / "device_communicators")]
        },
        "vllm.envs": {"VLLM_CUDART_SO_PATH": None},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": platform},
        "vllm.utils": {"__path__": []},
        "vllm.utils.system_utils": {"find_loaded_library": _loaded},
        "vllm.utils.torch_utils": {"PIN_MEMORY": True},
    }
    for name, content in modules.items():
        made = ModuleType(name)
        vars(made).update(content)
        sys.modules[name] = made


def _loaded(name: str) -> str | None:
    """Return the path of the library of this process whose name begins so.

    VLLM_CUDART_SO_PATH names another for CUDA's runtime, as the stand-in GPU needs.
    """
    if name == "libcudart" and "VLLM_CUDART_SO_PATH" in os.environ:
        return os.environ["VLLM_CUDART_SO_PATH"]
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if path and Path(path).name.startswith(name):
            return f"/{path}"
    return None
