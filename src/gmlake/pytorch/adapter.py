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

from gmlake.pytorch import compiling, notices
from gmlake.pytorch.compiling import KNOWN, AdapterError

if TYPE_CHECKING:
    from collections.abc import Iterator


def minor() -> int:
    """Return the minor version of PyTorch 2. Raises AdapterError for one that is not known."""
    major, number = (int(part) for part in torch.__version__.split(".")[:2])
    if major != 2 or number not in KNOWN:  # noqa: PLR2004
        raise AdapterError(
            f"it knows PyTorch 2.{KNOWN[0]} to 2.{KNOWN[-1]}, and this one is {torch.__version__}"
        )
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

    def make(path: Path) -> None:
        home = Path(torch.__file__).parent
        compiling.make(path, home, minor(), has_cxx11_abi=has_cxx11_abi)

    folder = _cache()
    if folder is None:
        notices.once(
            "adapter cache",
            f"{_cache_path()} cannot be written, so the adapter to PyTorch is compiled anew in "
            "each process; set XDG_CACHE_HOME to a folder of yours",
        )
        path = Path(tempfile.mkdtemp(prefix="gmlake-")) / name
        atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
        make(path)
        return path
    path = folder / name
    if not path.exists():
        with _locked(path.with_suffix(".lock")):
            if not path.exists():
                make(path)
    return path


def _cache_path() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gmlake"


def _cache() -> Path | None:
    """Return the folder for what is compiled; None where nothing can be written there."""
    try:
        folder = _cache_path()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(bytes(1 << 20))
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which the system takes back from a process that ends."""
    with path.open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
