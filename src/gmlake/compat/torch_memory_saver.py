"""torch_memory_saver's interface over gmlake's regions.

    from gmlake.compat.torch_memory_saver import torch_memory_saver

in place of `from torch_memory_saver import torch_memory_saver`. Names, arguments and meaning are
those of torch_memory_saver 0.0.10; gmlake is enabled at the first use. What differs: pausing twice
is a ValueError and not the end of the process, resuming is all or nothing, memory of tensors is
stitched, and nothing is preloaded. docs/sleep.md has the table of its own tests.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from gmlake.errors import UnsupportedError
from gmlake.pytorch import sleeping
from gmlake.pytorch.region import enable

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULT: Final = "default"
_BACKENDS: Final = (None, "pinned", "mmap")
_YES: Final = ("1", "true", "yes")


class TorchMemorySaver:
    """Regions by tag, which can be paused and resumed."""

    def __init__(self) -> None:
        """Nothing begins before the first use."""
        self._tags: dict[str, list[str]] = {}
        self._folder = os.environ.get("TMS_DISK_BACKUP_DIR")
        self._is_begun = False
        self.hook_mode = "torch"
        """Kept, and means nothing: there is one way here."""

    @property
    def enabled(self) -> bool:
        """Always."""
        return True

    @contextmanager
    def region(
        self,
        tag: str = _DEFAULT,
        enable_cpu_backup: bool = False,  # noqa: FBT001, FBT002 (as there)
        enable_disk_backup: bool = False,  # noqa: FBT001, FBT002
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """Let what this thread allocates be paused and resumed by its tag.

        cpu_backup_backend: "pinned" or "mmap", which are both page-locked memory here.
        """
        backup = _backup(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        with self._region(tag, backup, graphs=False):
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
        backup = _backup(enable_cpu_backup, False, cpu_backup_backend)  # noqa: FBT003
        with (
            self._region(tag, backup, graphs=True),
            torch.cuda.graph(cuda_graph, pool, stream, capture_error_mode),  # type: ignore[arg-type, unused-ignore]
        ):
            yield

    @contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:  # noqa: FBT001, FBT002
        """Allocate in no region inside; what is idle then goes back to the device."""
        self._begin()
        with sleeping.outside():
            yield
        if dispose_mem_pool_after_use:
            torch.cuda.empty_cache()

    def pause(self, tag: str | None = None) -> None:
        """Give the memory of a tag back, of all that are not paused where None."""
        self._begin()
        names = self._names(tag, are_asleep=False)
        if names:
            sleeping.sleep(*names)

    def resume(self, tag: str | None = None) -> None:
        """Take the memory of a tag again, of all that are paused where None."""
        self._begin()
        names = self._names(tag, are_asleep=True)
        if names:
            sleeping.wake(*names)

    def get_cpu_backup(self, x: torch.Tensor, zero_copy: bool = False) -> torch.Tensor | None:  # noqa: FBT001, FBT002
        """Return what a paused tensor held, on the host; None where it is not saved there.

        zero_copy: the memory itself, which is valid until the tensor is resumed.
        """
        if not zero_copy:
            return sleeping.saved_copy(x)
        found = sleeping.saved_bytes(x)
        return None if found is None else found.view(x.dtype).view(x.shape)

    def set_disk_backup_dir(self, path: str) -> None:
        """Say where the files lie of regions that are made from now on."""
        Path(path).mkdir(parents=True, exist_ok=True)
        self._folder = path

    @property
    def memory_margin_bytes(self) -> int:
        """How much an allocation must leave free: nothing here."""
        return 0

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        if value:
            raise UnsupportedError("gmlake keeps no margin; use gmlake.enable(capacity=...)")

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether what was saved can still be read after resuming: no."""
        return False

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        if value:
            raise UnsupportedError(
                "what was saved is not readable after resume(); the page-locked memory itself is "
                "kept for the next pause() in any case"
            )

    def _begin(self) -> None:
        if not self._is_begun:
            enable()
            self._is_begun = True

    @contextmanager
    def _region(self, tag: str, backup: str | None, *, graphs: bool) -> Iterator[None]:
        self._begin()
        name = f"{tag} ({backup or 'not saved'}{', graphs' if graphs else ''})"
        folder = self._folder if backup == "disk" else None
        with sleeping.region(name, backup=backup, folder=folder, graphs=graphs):
            names = self._tags.setdefault(tag, [])
            if name not in names:
                names.append(name)
            yield

    def _names(self, tag: str | None, *, are_asleep: bool) -> list[str]:
        """Return the regions of a tag that are in that state; ValueError where none is."""
        wanted = (
            self._tags.get(tag, []) if tag else [n for some in self._tags.values() for n in some]
        )
        states = {each.name: each.is_asleep for each in sleeping.regions()}
        found = [name for name in wanted if states[name] is are_asleep]
        if tag and wanted and not found:
            raise ValueError(f"tag {tag!r} is {'not paused' if are_asleep else 'paused already'}")
        return found


def _backup(has_cpu: bool, has_disk: bool, backend: str | None) -> str | None:  # noqa: FBT001
    if has_cpu and has_disk:
        raise ValueError("enable_cpu_backup and enable_disk_backup exclude each other")
    if backend not in _BACKENDS:
        raise ValueError(f'cpu_backup_backend is "pinned" or "mmap", not {backend!r}')
    if backend is not None and not has_cpu:
        raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
    return "cpu" if has_cpu else "disk" if has_disk else None


@contextmanager
def configure_subprocess() -> Iterator[None]:
    """Do nothing: a process that uses this interface needs no preloaded library."""
    yield


def _enter_from_environment(saver: TorchMemorySaver) -> None:
    """Let everything of this thread be in the default region where TMS_INIT_ENABLE says so."""
    if os.environ.get("TMS_INIT_ENABLE", "").lower() in _YES:
        has_backup = os.environ.get("TMS_INIT_ENABLE_CPU_BACKUP", "").lower() in _YES
        _lasting.enter_context(saver.region(enable_cpu_backup=has_backup))


_lasting = contextlib.ExitStack()
torch_memory_saver = TorchMemorySaver()
_enter_from_environment(torch_memory_saver)

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]
