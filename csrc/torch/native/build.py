"""Build the adapters for every minor version of PyTorch, which a wheel then brings.

    python csrc/torch/native/build.py FOLDER

Each is made from the sources in the installed gmlake, and from the headers and libraries in
PyTorch's own wheel for CUDA, which is fetched whole (up to 0.9 GB), one at a time. What is in
FOLDER already is kept; what is out of date goes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from gmlake.pytorch import compiling, versions

LIMITS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11)}
"""What the systems have that PyTorch's own wheels run on (manylinux_2_28)."""
WANTED = ("torch/include/", "torch/lib/libc10.so", "torch/lib/libc10_cuda.so")


def fetch(minor: int, folder: Path) -> Path:
    """Return the folder `torch` with what an adapter is made from, out of PyTorch's wheel."""
    # Headers are the same for every Python. === takes no other build, as one for the CPU.
    options = ("--no-deps", "--no-cache-dir", "--only-binary=:all:", "--python-version=3.11")
    pip = (sys.executable, "-m", "pip", "--quiet", "download", *options, f"--dest={folder}")
    subprocess.run([*pip, f"torch===2.{minor}.0"], check=True)  # noqa: S603 (what is written here)
    (wheel,) = folder.glob("torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(WANTED)]
        archive.extractall(folder, names)
    if not set(WANTED[1:]) <= set(names):
        sys.exit(f"{wheel.name} is not for CUDA")
    wheel.unlink()
    return folder / "torch"


def needs(adapter: Path) -> dict[str, tuple[int, ...]]:
    """Return the newest version that an adapter wants, of each of the system's libraries."""
    table = subprocess.run(  # noqa: S603
        ["objdump", "--dynamic-syms", adapter],  # noqa: S607 (comes with every compiler)
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    newest: dict[str, tuple[int, ...]] = {}
    for name, version in re.findall(r"\((GLIBC|GLIBCXX|CXXABI)_([\d.]+)\)", table):
        numbers = tuple(map(int, version.split(".")))
        newest[name] = max(newest.get(name, ()), numbers)
    return newest


def main() -> None:
    """Build what is missing in the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = {compiling.file_name(minor): minor for minor in versions.KNOWN}
    for old in folder.glob("*.so"):
        if old.name not in names:
            old.unlink()
    for name, minor in names.items():
        path = folder / name
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                made = Path(place) / name
                made.write_bytes(compiling.make(fetch(minor, Path(place)), minor))
                made.chmod(0o700)
                if too_new := {k: v for k, v in needs(made).items() if v > LIMITS[k]}:
                    sys.exit(f"{name} wants a newer system than PyTorch does: {too_new}")
                made.rename(path)
        wanted = (f"{k} {'.'.join(map(str, v))}" for k, v in sorted(needs(path).items()))
        print(f"{name}  {path.stat().st_size:,} bytes, {', '.join(wanted)}", flush=True)


if __name__ == "__main__":
    main()
