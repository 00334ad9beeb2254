"""Builds the adapter to PyTorch's C++ allocator interface from sources and PyTorch's headers.

PyTorch's virtual tables differ in every minor version, so there is an adapter for each. This module
does not depend on the installed PyTorch.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
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
_OPTIONS: Final = (
    "-D_GLIBCXX_USE_CXX11_ABI=1",  # as every release of PyTorch that has an adapter
    *("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-s", "-Wl,-z,nodelete"),
)
_INTERFACE: Final = (
    *("c10/core/Allocator.h", "c10/core/CachingDeviceAllocator.h"),
    "c10/cuda/CUDACachingAllocator.h",
)
_CXX20_SINCE: Final = 14
"""Its headers need C++20, which uses more of the C++ library than C++17 does."""


class AdapterError(RuntimeError):
    """There is no adapter for this PyTorch, and none can be built; the text says why."""


def file_name(minor: int, build: str = "") -> str:
    """Return an adapter's file name, which is unique for each set of sources.

    build: identifies a PyTorch that is not a release, whose headers are its own.
    """
    digest = hashlib.sha256()
    for part in (platform.machine(), *_options(minor), build):
        digest.update(part.encode() + b"\0")
    for path in sorted(path for path in SOURCES.rglob("*") if path.suffix in _SOURCE):
        digest.update(path.read_bytes() + b"\0")
    return f"adapter-2.{minor}-{digest.hexdigest()[:16]}.so"


def interface(home: Path) -> bytes:
    """Return the text in each adapter that fits the headers in the folder `torch`; b"" without any.

    They declare the virtual functions, which a patch release could change as well.
    """
    headers = [path for name in _INTERFACE if (path := home / "include" / name).exists()]
    if not headers:
        return b""
    texts = b"\0".join(path.read_bytes() for path in headers)
    return f"gmlake adapter to {hashlib.sha256(texts).hexdigest()}".encode()


def make(home: Path, minor: int) -> bytes:
    """Return an adapter, built where no other user can reach it. Raises AdapterError.

    home: the folder `torch` with the headers and libraries of a build of PyTorch for CUDA.
    """
    command = [
        *compiler(),
        f'-DGML_NATIVE_INTERFACE="{interface(home).decode()}"',
        *_options(minor),
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


def _options(minor: int) -> tuple[str, ...]:
    return ("-std=c++20" if minor >= _CXX20_SINCE else "-std=c++17", *_OPTIONS)


def compiler() -> list[str]:
    """Return what starts the C++ compiler: its path, and the words of CXX behind that.

    Raises AdapterError.
    """
    chosen = os.environ.get("CXX")
    for text in (chosen,) if chosen else COMPILERS:
        try:
            name, *words = shlex.split(text)
        except ValueError:  # a quote that does not end, or blanks
            continue
        if found := shutil.which(name):
            return [found, *words]
    wanted = f"CXX={chosen} is not there" if chosen else "there is no C++ compiler"
    raise AdapterError(f"{wanted}, which makes the adapter to PyTorch; install g++")
