"""vLLM's sleep mode over gmlake's regions.

    gmlake run -m vllm.entrypoints.cli.main serve ... --enable-sleep-mode

vLLM finds register() by itself, as a plugin (the entry point vllm.general_plugins). Where gmlake
serves the process, the allocator of vLLM's sleep mode is the one below, with the interface that
vLLM 0.33 has for it: weights, KV cache and graphs lie in regions, whose idle memory is still
stitched. Otherwise vLLM is left as it is.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

import torch

from gmlake import annexes
from gmlake.compat import vllm_cache
from gmlake.pytorch import sleeping
from gmlake.pytorch.session import is_enabled

_PREFIX: Final = "vllm "
_DEFAULT: Final = "default"
_DEFERRABLE: Final = ("weights", "kv_cache")  # a wake that names tags restores all others, too
_BACKEND: Final = "gmlake"
_MARK: Final = "is_of_gmlake"


class SleepAllocator:
    """Allocates vLLM's memory that sleeps, in place of its CuMemAllocator."""

    def __init__(self) -> None:
        self._graphs: tuple[int, int] | None = None

    @contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """Let this thread allocate under a tag."""
        with sleeping.region(_PREFIX + (tag or _DEFAULT)):
            yield

    @contextmanager
    def cudagraph_pool(self) -> Iterator[tuple[int, int]]:
        """Let graphs be captured into memory that sleeps; give the pool to capture with."""
        self._graphs = self._graphs or torch.cuda.graph_pool_handle()
        with sleeping.region(_PREFIX + "cudagraph", graphs=True):
            yield self._graphs

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        """Put all to sleep: save memory with one of these tags on the host, discard the rest.

        Idle memory elsewhere is given back, too, as vLLM's allocator does.
        """
        saved = (offload_tags,) if isinstance(offload_tags, str) else offload_tags or (_DEFAULT,)
        awake = self._names(is_asleep=False)
        kept = [name for name in awake if name.removeprefix(_PREFIX) in saved]
        lost = [name for name in awake if name not in kept]
        if kept:
            sleeping.sleep(*kept, backup="cpu")
        try:
            if lost:
                sleeping.sleep(*lost, backup=None)
        except BaseException:
            if kept:
                sleeping.wake(*kept)
            raise
        gc.collect()
        torch.cuda.empty_cache()

    def discard(self, tags: tuple[str, ...] | str) -> None:
        """Put the memory with these tags to sleep; its contents are lost."""
        wanted = (tags,) if isinstance(tags, str) else tags
        names = [n for n in self._names(is_asleep=False) if n.removeprefix(_PREFIX) in wanted]
        if names:
            sleeping.sleep(*names, backup=None)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Wake all, or only the named ones of weights and KV cache; all or nothing."""
        names = [
            name
            for name in self._names(is_asleep=True)
            if tags is None
            or name.removeprefix(_PREFIX) in tags
            or name.removeprefix(_PREFIX) not in _DEFERRABLE
        ]
        if names:
            sleeping.wake(*names)

    def get_current_usage(self) -> int:
        """Return the bytes allocated under all tags, asleep or not."""
        return sum(each.live_bytes for each in sleeping.regions() if each.name.startswith(_PREFIX))

    def release_pools(self) -> None:
        """Do nothing: tensors are freed as usual."""

    def close(self) -> None:
        """Do nothing, like release_pools()."""

    @staticmethod
    def _names(*, is_asleep: bool) -> list[str]:
        return [
            each.name
            for each in sleeping.regions()
            if each.name.startswith(_PREFIX) and each.is_asleep is is_asleep
        ]


_allocator = SleepAllocator()


def register() -> None:
    """Register the backend "gmlake", and this allocator if gmlake serves the process.

    vLLM before 0.26 has no backends to choose among, only the allocator. An annex may want more.
    """
    for watch in annexes.hooked("vllm"):
        watch()
    vllm_cache.register()
    with suppress(ModuleNotFoundError, ValueError):  # ValueError: plugins may be loaded again
        backends: Any = import_module("vllm.device_allocator.sleep_mode_backend")
        factory = backends.SleepModeBackendFactory
        factory.register_backend(_BACKEND, "gmlake.compat.vllm_backend", "GmlakeBackend")
    cumem: Any = import_module("vllm.device_allocator.cumem")
    given = cumem.CuMemAllocator.get_instance
    if hasattr(given, _MARK):
        return

    def get_instance() -> Any:  # noqa: ANN401 (theirs or ours)
        return _allocator if is_enabled() else given()

    setattr(get_instance, _MARK, True)
    cumem.CuMemAllocator.get_instance = staticmethod(get_instance)
