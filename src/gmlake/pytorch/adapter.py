"""The adapter for the PyTorch that is here: the package's, or compiled once for this user.

The package brings adapters for releases of PyTorch, if it was built with them. Where none fits,
one is compiled from the headers of the PyTorch that is here, into the user's cache.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gmlake import owned
from gmlake.pytorch import compiling, notices
from gmlake.pytorch.compiling import AdapterError
from gmlake.pytorch.versions import KNOWN, RANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def minor() -> int:
    """Return the minor version of PyTorch 2. Raises AdapterError for one that is not known."""
    major, number = (int(part) for part in torch.__version__.split(".")[:2])
    if major != 2 or number not in KNOWN:  # noqa: PLR2004
        raise AdapterError(f"it knows PyTorch {RANGE}, and this one is {torch.__version__}")
    return number


@cache
def find() -> Path:
    """Return the adapter for this PyTorch, compiled now if need be, by one process for all.

    Raises AdapterError.
    """
    is_release = re.fullmatch(r"[\d.]+(\+cu\d+)?", torch.__version__)
    build = "" if is_release else f"{torch.__version__} {torch.version.git_version}"
    has_cxx11_abi = torch.compiled_with_cxx11_abi()
    name = compiling.file_name(minor(), has_cxx11_abi=has_cxx11_abi, build=build)
    if (compiling.SOURCES / name).exists():
        return compiling.SOURCES / name

    @cache
    def made() -> bytes:
        home = Path(torch.__file__).parent
        return compiling.make(home, minor(), has_cxx11_abi=has_cxx11_abi)

    try:
        return _kept(name, made)
    except AdapterError:
        raise
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        where = error.filename if isinstance(error, OSError) and error.filename else "the cache"
        why = error.strerror if isinstance(error, OSError) else error
        notices.once(
            "adapter cache",
            f"{where} is not used ({why}), so the adapter to PyTorch is compiled anew in each "
            "process; set XDG_CACHE_HOME to a folder of yours that no other user can write",
        )
    path = Path(tempfile.mkdtemp(prefix="gmlake-")) / name
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    path.write_bytes(made())
    return path


def _kept(name: str, made: Callable[[], bytes]) -> Path:
    """Return the adapter in the user's cache, put there now if need be. Raises OSError.

    The path leads through the folder as it was found safe, which stays open for that, and names
    this process: what a process starts, a symbolizer say, finds the same file there.
    """
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gmlake"
    cache_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = owned.open_folder(cache_folder, owned.NO_WRITE)
    try:
        if not _is_there(folder, name):
            with _locked(folder, f"{name.removesuffix('.so')}.lock"):
                if not _is_there(folder, name):
                    owned.write_file(folder, name, made(), 0o700)
    except BaseException:
        os.close(folder)
        raise
    return Path(f"/proc/{os.getpid()}/fd/{folder}/{name}")


def _is_there(folder: int, name: str) -> bool:
    try:
        os.close(owned.open_file(folder, name, owned.NO_WRITE))
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _locked(folder: int, name: str) -> Iterator[None]:
    """Hold the lock of a file, which the system takes back from a process that ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
