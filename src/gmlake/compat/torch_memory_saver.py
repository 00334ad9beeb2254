"""torch_memory_saver's interface over gmlake's regions.

    from gmlake.compat.torch_memory_saver import torch_memory_saver

in place of `from torch_memory_saver import torch_memory_saver`. Names, arguments and meaning are
those of torch_memory_saver 0.0.10, its environment variables included; gmlake is enabled at the
first use. Differences: pausing twice raises ValueError instead of ending the process, resuming is
all or nothing, memory of tensors is stitched, and nothing is preloaded. docs/sleep.md lists the
results of its own tests.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import torch

from gmlake import _core
from gmlake.pytorch import sleeping
from gmlake.pytorch.session import enable

_DEFAULT: Final = "default"
_PINNED: Final = "pinned"
_RETURNED: Final = "mmap"  # the host has its memory back when the device has its own
_YES: Final = ("1", "true", "yes")


class _Thread(threading.local):
    """The settings with which a thread allocates, initially those of the environment."""

    def __init__(self) -> None:
        self.is_inside = _says("TMS_INIT_ENABLE")
        self.tag = _DEFAULT
        self.has_cpu_backup = _says("TMS_INIT_ENABLE_CPU_BACKUP")
        has_other = os.environ.get("TMS_INIT_CPU_BACKUP_BACKEND") == _RETURNED
        self.backend = _RETURNED if has_other else _PINNED
        self.graphs = False
        self.chosen: _Inside | None = None  # by a function of the library, until the next choice


class _Inside(_core.Inside):
    """The region that a thread's settings select."""

    def __init__(self, region: tuple[int, bool, bool], *, everywhere: bool) -> None:
        self._region = region
        self.is_everywhere = everywhere

    def region(self) -> tuple[int, bool, bool]:
        return self._region


class TorchMemorySaver:
    """Regions by tag, which can be paused and resumed."""

    def __init__(self) -> None:
        """Defer everything to the first use, unless the environment says otherwise."""
        self.hook_mode = "torch"
        """Kept for compatibility; it has no effect."""
        self.retain_cpu_backup = _says("TMS_RETAIN_CPU_BACKUP")
        """Whether saved contents can still be read after resume(), as they were at pause()."""
        self._tags: dict[str, list[str]] = {}
        self._retained: set[str] = set()  # regions whose saved bytes can be read
        self._returned: set[str] = set()  # those that give the host its memory back
        self._margin_bytes = 0
        self._thread = _Thread()
        _check(False, _says("TMS_INIT_ENABLE_DISK_BACKUP"), None)  # noqa: FBT003
        self._impl: _Implementation | None = None
        if self._thread.is_inside:
            self._ensure_initialized()
            self._everywhere = self._inside(everywhere=True).__enter__()

    @property
    def enabled(self) -> bool:
        return True

    @contextmanager
    def region(
        self,
        tag: str = _DEFAULT,
        enable_cpu_backup: bool = False,  # noqa: FBT001, FBT002 (as there)
        enable_disk_backup: bool = False,  # noqa: FBT001, FBT002
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """Make this thread's allocations inside pausable and resumable by their tag.

        cpu_backup_backend: "pinned" keeps the host's memory for the next pause, "mmap" gives it
        back at each resume, so that each pause has to take it again; both are page-locked here.
        """
        _check(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        with self._within(
            is_inside=True,
            tag=tag,
            has_cpu_backup=enable_cpu_backup,
            backend=cpu_backup_backend or self._thread.backend,
            graphs=False,
        ):
            yield

    @contextmanager
    def cuda_graph(  # noqa: PLR0913, PLR0917 (as there)
        self,
        cuda_graph: torch.cuda.CUDAGraph,
        pool: tuple[int, int] | None = None,
        stream: torch.cuda.Stream | None = None,
        capture_error_mode: str = "global",
        tag: str = _DEFAULT,
        enable_cpu_backup: bool = False,  # noqa: FBT001, FBT002
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """Capture as torch.cuda.graph does; the graph's memory can be paused, too."""
        _check(enable_cpu_backup, False, cpu_backup_backend)  # noqa: FBT003
        with (
            self._within(
                is_inside=True,
                tag=tag,
                has_cpu_backup=enable_cpu_backup,
                backend=cpu_backup_backend or self._thread.backend,
                graphs=True,
            ),
            torch.cuda.graph(cuda_graph, pool, stream, capture_error_mode),  # type: ignore[arg-type, unused-ignore]
        ):
            yield

    @contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:  # noqa: FBT001, FBT002
        """Allocate in no region inside; the idle memory is then released to the device."""
        with self._within(is_inside=False):
            yield
        if dispose_mem_pool_after_use:
            torch.cuda.empty_cache()

    def pause(self, tag: str | None = None) -> None:
        """Give the memory of a tag back, of all that are not paused where None."""
        self._ensure_initialized()
        names = self._names(tag, are_asleep=False)
        if names:
            sleeping.sleep(*names)

    def resume(self, tag: str | None = None) -> None:
        """Take the memory of a tag again, of all that are paused where None."""
        self._ensure_initialized()
        names = self._names(tag, are_asleep=True)
        if names:
            sleeping.wake(*names)
        if self.retain_cpu_backup:
            self._retained.update(names)
        else:
            self._retained.difference_update(names)
            sleeping.forget_saved(*self._returned.intersection(names))

    def get_cpu_backup(self, x: torch.Tensor, zero_copy: bool = False) -> torch.Tensor | None:  # noqa: FBT001, FBT002
        """Return the contents of a paused tensor, on the host; None if they are not saved there.

        Of a resumed tensor, the contents when it was paused, if retain_cpu_backup was set when it
        was resumed. zero_copy: the memory itself, which is valid until the tensor is paused again,
        and without retain_cpu_backup until it is resumed.
        """
        found = sleeping.saved_bytes(x)
        if found is None:
            return None
        name, held = found
        if name not in self._retained and name not in self._names(None, are_asleep=True):
            return None
        return (held if zero_copy else held.clone()).view(x.dtype).view(x.shape)

    def set_disk_backup_dir(self, path: str) -> None:  # noqa: ARG002 (as there)
        """Raise ValueError: there is no disk backup."""
        _check(False, True, None)  # noqa: FBT003

    @property
    def memory_margin_bytes(self) -> int:
        """How much of a device an allocation in a region must leave free; at first 0."""
        return self._margin_bytes

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        _core.torch_set_margin(value)
        self._margin_bytes = value

    def _ensure_initialized(self) -> None:
        if self._impl is None:
            enable()
            self._impl = _Implementation(self)

    @contextmanager
    def _within(self, **changed: Any) -> Iterator[None]:  # noqa: ANN401 (settings of a thread)
        """Let this thread allocate as its settings say, with some of them changed."""
        self._ensure_initialized()
        before = dict(vars(self._thread))
        vars(self._thread).update(changed)
        try:
            with self._inside():
                yield
        finally:
            vars(self._thread).update(before)

    def _inside(self, *, everywhere: bool = False) -> _Inside:
        """Return the context in which this thread allocates as its settings say."""
        is_inside = self._thread.is_inside
        region = self._region_of_thread().region() if is_inside else (0, False, False)
        return _Inside(region, everywhere=everywhere)

    def _region_of_thread(self) -> sleeping.region:
        """Return the region that this thread's settings mean."""
        of = self._thread
        backup = "cpu" if of.has_cpu_backup else None
        is_returned = backup == "cpu" and of.backend == _RETURNED
        words = [backup or "not saved", *[_RETURNED] * is_returned, *["graphs"] * of.graphs]
        name = f"{of.tag} ({', '.join(words)})"
        names = self._tags.setdefault(of.tag, [])
        if name not in names:
            names.append(name)
        if is_returned:
            self._returned.add(name)
        return sleeping.region(name, backup=backup, graphs=of.graphs)

    def _names(self, tag: str | None, *, are_asleep: bool) -> list[str]:
        """Return the regions of a tag that are in that state; ValueError if there are none."""
        wanted = (
            self._tags.get(tag, []) if tag else [n for some in self._tags.values() for n in some]
        )
        states = {each.name: each.is_asleep for each in sleeping.regions()}
        found = [name for name in wanted if states.get(name) is are_asleep]
        if tag and wanted and not found:
            raise ValueError(f"tag {tag!r} is {'not paused' if are_asleep else 'paused already'}")
        return found


class _Library:
    """The functions of torch_memory_saver's C library, by which programs step out of a region."""

    def __init__(self, saver: TorchMemorySaver) -> None:
        self._saver = saver

    # Called by programs and by the library's tests. Texts are bytes, as in C.

    def tms_get_interesting_region(self) -> bool:
        return self._now.is_inside

    def tms_set_interesting_region(self, value: bool) -> None:  # noqa: FBT001 (as there)
        self._change(is_inside=value)

    def tms_get_current_tag(self) -> bytes:
        return self._now.tag.encode()

    def tms_set_current_tag(self, tag: bytes) -> None:
        self._change(tag=tag.decode())

    def tms_get_enable_cpu_backup(self) -> bool:
        return self._now.has_cpu_backup

    def tms_set_enable_cpu_backup(self, value: bool) -> None:  # noqa: FBT001
        self._change(has_cpu_backup=value)

    def tms_get_cpu_backup_backend(self) -> bytes:
        return self._now.backend.encode()

    def tms_set_cpu_backup_backend(self, name: bytes) -> None:
        self._change(backend=name.decode())

    def tms_get_retain_cpu_backup(self) -> bool:
        return self._saver.retain_cpu_backup

    def tms_set_retain_cpu_backup(self, value: bool) -> None:  # noqa: FBT001
        self._saver.retain_cpu_backup = value

    def set_memory_margin_bytes(self, value: int) -> None:
        self._saver.memory_margin_bytes = value

    def tms_pause(self, tag: bytes | None) -> int:
        self._saver.pause(tag.decode() if tag else None)
        return 0

    def tms_resume(self, tag: bytes | None) -> int:
        self._saver.resume(tag.decode() if tag else None)
        return 0

    @property
    def _now(self) -> _Thread:
        return self._saver._thread  # noqa: SLF001 (one module)

    def _change(self, **changed: Any) -> None:  # noqa: ANN401
        vars(self._now).update(changed)
        self._now.chosen = self._saver._inside().__enter__()  # noqa: SLF001


class _Implementation:
    """Created at the first use, with the attribute names that programs access."""

    def __init__(self, saver: TorchMemorySaver) -> None:
        self.cdll = _Library(saver)
        self._binary_wrapper = self
        self._with_region_config = saver.region


def _says(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in _YES


def _check(has_cpu: bool, has_disk: bool, backend: str | None) -> None:  # noqa: FBT001
    if has_disk:
        raise ValueError("gmlake has no disk backup; enable_cpu_backup saves in the host's memory")
    if backend not in (None, _PINNED, _RETURNED):
        raise ValueError(f'cpu_backup_backend is "pinned" or "mmap", not {backend!r}')
    if backend is not None and not has_cpu:
        raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")


configure_subprocess: Final = nullcontext  # processes need no preloaded library here
torch_memory_saver = TorchMemorySaver()

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]
