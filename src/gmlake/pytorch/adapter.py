"""The adapter to PyTorch's C++ allocator interface: found, or compiled where it is installed.

Its C++ file comes with this package. PyTorch's virtual tables differ in every minor version, so it
is compiled from the headers of the PyTorch that is here, once, into the user's cache.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

import gmlake
from gmlake.printable import printable
from gmlake.pytorch import notices

if TYPE_CHECKING:
    from collections.abc import Iterator

KNOWN: Final = range(11, 15)
"""The minor versions of PyTorch 2 whose interface the adapter has in full."""
SOURCES: Final = Path(gmlake.__file__).parent / "adapter"
COMPILERS: Final = ("c++", "g++", "clang++")
_COMPILE_SECONDS: Final = 300
_OPTIONS: Final = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")


class AdapterError(RuntimeError):
    """There is no adapter for this PyTorch, and none can be made; the text says why."""


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
    name = f"adapter-2.{minor()}-{_key()}.so"
    folder = _cache()
    if folder is None:
        notices.once(
            "adapter cache",
            f"{_cache_path()} cannot be written, so the adapter to PyTorch is compiled anew in "
            "each process; set XDG_CACHE_HOME to a folder of yours",
        )
        path = Path(tempfile.mkdtemp(prefix="gmlake-")) / name
        atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
        _compile(path)
        return path
    path = folder / name
    if not path.exists():
        with _locked(path.with_suffix(".lock")):
            if not path.exists():
                _compile(path)
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


def _files() -> list[Path]:
    return sorted(path for path in SOURCES.rglob("*") if path.is_file())


def _key() -> str:
    """Return what names a compiled adapter: all that it is made from."""
    digest = hashlib.sha256()
    for part in (torch.__version__, str(torch.version.git_version), platform.machine()):
        digest.update(part.encode() + b"\0")
    for path in _files():
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _compiler() -> str:
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else COMPILERS:
        if found := shutil.which(name.split()[0] if name else ""):
            return found
    wanted = f"CXX={chosen} is not there" if chosen else "there is no C++ compiler"
    raise AdapterError(f"{wanted}, which makes the adapter to PyTorch; install g++")


def _compile(path: Path) -> None:
    """Make the adapter at `path`, whole or not at all. Raises AdapterError.

    pre: nobody else makes it.
    """
    home = Path(torch.__file__).parent
    made = path.with_suffix(".tmp")  # what a process that was killed left is written over
    command = [
        _compiler(),
        *_OPTIONS,
        f"-DGML_TORCH_MINOR={minor()}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *("-isystem", str(home / "include"), "-isystem", str(SOURCES / "cuda")),
        *(f"-I{SOURCES}", str(SOURCES / "adapter.cpp"), "-o", str(made)),
        *(f"-L{home / 'lib'}", "-lc10", "-lc10_cuda", "-Wl,-z,nodelete"),
    ]
    try:
        done = subprocess.run(  # noqa: S603 (a compiler that the user chose)
            command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            why = errors[0] if errors else f"{command[0]} ended with code {done.returncode}"
            raise AdapterError(f"the adapter to PyTorch cannot be compiled: {printable(why)[:300]}")
        made.chmod(0o700)
        made.replace(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdapterError(f"the adapter to PyTorch cannot be compiled: {error}") from None
    finally:
        made.unlink(missing_ok=True)
