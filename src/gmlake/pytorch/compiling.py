"""Builds the adapter to PyTorch's C++ allocator interface from sources and PyTorch's headers.

PyTorch's virtual tables differ in every minor version, so there is an adapter for each. This module
does not depend on the installed PyTorch.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import gmlake
from gmlake.printable import printable

SOURCES: Final = Path(gmlake.__file__).parent / "adapter"
COMPILERS: Final = ("c++", "g++", "clang++")
_SOURCE: Final = {".cpp", ".hpp", ".h"}
_COMPILE_SECONDS: Final = 300
_OPTIONS: Final = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-s", "-Wl,-z,nodelete")
_CXX20_SINCE: Final = 14
"""Its headers need C++20, which uses more of the C++ library than C++17 does."""


class AdapterError(RuntimeError):
    """There is no adapter for this PyTorch, and none can be built; the text says why."""


def file_name(minor: int, *, has_cxx11_abi: bool = True, build: str = "") -> str:
    """Return an adapter's file name, which is unique for each set of sources.

    build: identifies a PyTorch that is not a release, whose headers are its own.
    """
    digest = hashlib.sha256()
    parts = (platform.machine(), *_options(minor, has_cxx11_abi=has_cxx11_abi), build)
    for part in parts:
        digest.update(part.encode() + b"\0")
    for path in sorted(path for path in SOURCES.rglob("*") if path.suffix in _SOURCE):
        digest.update(path.read_bytes() + b"\0")
    return f"adapter-2.{minor}-{digest.hexdigest()[:16]}.so"


def make(home: Path, minor: int, *, has_cxx11_abi: bool = True) -> bytes:
    """Return an adapter, built where no other user can reach it. Raises AdapterError.

    home: the folder `torch` with the headers and libraries of a build of PyTorch for CUDA.
    """
    command = [
        compiler(),
        *_options(minor, has_cxx11_abi=has_cxx11_abi),
        *("-isystem", str(home / "include"), "-isystem", str(SOURCES / "cuda")),
        *(f"-I{SOURCES}", str(SOURCES / "adapter.cpp")),
        *(f"-L{home / 'lib'}", "-lc10", "-lc10_cuda"),
        # The same sources give the same file, wherever they lie.
        *(f"-ffile-prefix-map={home}=torch", f"-ffile-prefix-map={SOURCES}=gmlake"),
    ]
    try:
        with tempfile.TemporaryDirectory(prefix="gmlake-") as folder:
            made = Path(folder) / "adapter.so"
            done = subprocess.run(  # noqa: S603 (a compiler that the user chose)
                [*command, "-o", str(made)],
                capture_output=True,
                text=True,
                timeout=_COMPILE_SECONDS,
                check=False,
            )
            if not done.returncode:
                return made.read_bytes()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdapterError(f"the adapter to PyTorch cannot be compiled: {error}") from None
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    why = errors[0] if errors else f"{command[0]} ended with code {done.returncode}"
    raise AdapterError(f"the adapter to PyTorch cannot be compiled: {printable(why)[:300]}")


def _options(minor: int, *, has_cxx11_abi: bool) -> tuple[str, ...]:
    standard = "-std=c++20" if minor >= _CXX20_SINCE else "-std=c++17"
    return (standard, f"-D_GLIBCXX_USE_CXX11_ABI={int(has_cxx11_abi)}", *_OPTIONS)


def compiler() -> str:
    """Return the path of the C++ compiler. Raises AdapterError."""
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else COMPILERS:
        if found := shutil.which(name.split()[0] if name else ""):
            return found
    wanted = f"CXX={chosen} is not there" if chosen else "there is no C++ compiler"
    raise AdapterError(f"{wanted}, which makes the adapter to PyTorch; install g++")
