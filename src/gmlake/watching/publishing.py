"""gmlake.publish(): lets `gmlake top` follow the lakes of this process."""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gmlake.errors import needing_torch
from gmlake.watching import folders

if TYPE_CHECKING:
    from gmlake.lake import Lake

VARIABLE: Final = "GMLAKE_TOP"
"""Set to 1: the lakes that serve PyTorch publish from the first request on."""

_LOOK_S: Final = 0.25


class _Publications:
    """The files of this process."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._paths: list[Path] = []
        self._devices: set[int] = set()
        self._pid = os.getpid()
        self.follower: threading.Thread | None = None

    def add(self, lake: Lake) -> None:
        """Make a lake publish. Raises OSError if there is no place for its file."""
        path = self._publish(lake, folders.make())
        with self._lock:
            if not self._paths:
                atexit.register(self.remove)
            self._paths.append(path)

    def _publish(self, lake: Lake, folder: Path) -> Path:
        """Make a lake publish, and return the path."""
        while True:
            name = folders.Name(folders.namespace(), os.getpid(), next(self._numbers))
            path = folder / str(name)
            with suppress(FileExistsError):  # of a killed process that had the same number
                lake.publish(str(path))
                return path

    def add_torch(self) -> None:
        """Make each lake of PyTorch publish, unless it does already."""
        from gmlake.pytorch import lakes

        for number in lakes.devices():
            with self._lock:
                is_new = number not in self._devices
                self._devices.add(number)
            lake = lakes.find(number)
            if is_new and lake is not None:
                try:
                    self.add(lake)
                except BaseException:
                    with self._lock:
                        self._devices.discard(number)
                    raise

    def remove(self) -> None:
        """Remove the remaining files when the process ends, but not those of a parent."""
        if os.getpid() == self._pid:
            for path in self._paths:
                with suppress(OSError):
                    path.unlink()


_publications = _Publications()


def publish(lake: Lake | None = None) -> None:
    """Let `gmlake top` follow a lake, or, without an argument, the lakes that serve PyTorch.

    Lakes of PyTorch that are created later, with the first request to their device, are included.
    The counters are in a file that only this user can read, in XDG_RUNTIME_DIR/gmlake or
    /tmp/gmlake-UID, and that is removed with the lake or the process. GMLAKE_TOP=1 in the
    environment does the same for PyTorch. Without CUDA there is nothing to publish, and a
    GmlakeWarning says so once.

    Raises OSError if no folder is safe for the file, and ValueError for a closed lake.
    """
    if lake is not None:
        _publications.add(lake)
        return
    with needing_torch("gmlake.publish()"):
        from gmlake.pytorch import device, notices

        if absence := device.absence():
            notices.once("top", f"gmlake.publish() publishes nothing: {absence}")
            return
        _publications.add_torch()
    if _publications.follower is None:
        _publications.follower = threading.Thread(
            target=_follow, name="gmlake publishes", daemon=True
        )
        _publications.follower.start()


def publish_if_asked() -> None:
    """Publish the lakes that serve PyTorch if GMLAKE_TOP=1; warn if that is impossible."""
    if os.environ.get(VARIABLE) != "1" or _publications.follower is not None:
        return
    try:
        publish()
    except OSError as error:
        from gmlake.pytorch import notices

        notices.once("top", f"{VARIABLE}=1 publishes nothing: {error.strerror}")


def _follow() -> None:
    """Wait for lakes of further devices, which their first request creates in C."""
    from gmlake.pytorch import lakes

    pause = threading.Event()
    with suppress(OSError):
        while not pause.wait(_LOOK_S):
            _publications.add_torch()
            if len(lakes.devices()) == _device_count():
                return


def _device_count() -> int:
    import torch

    return int(torch.cuda.device_count()) if torch.cuda.is_initialized() else -1


def _after_fork() -> None:
    """In a child, stop publishing the parent's lakes; publish its own if the parent did."""
    global _publications  # noqa: PLW0603 (a child begins anew)
    was_following = _publications.follower is not None
    _publications = _Publications()
    if was_following:
        with suppress(OSError):
            publish()


os.register_at_fork(after_in_child=_after_fork)
