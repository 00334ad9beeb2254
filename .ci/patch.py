"""Writes patch_image.h, what nvcc makes of patch.cu: `make patch`, or with --check compares them.

PTX of an old version in a fat binary, which the driver compiles for any device since Volta.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).absolute().parents[1] / "csrc" / "diagnosis" / "collect"
HEADER = FOLDER / "patch_image.h"
WORDS = 4  # in a line


def make_image(nvcc: str) -> bytes:
    """Return the fat binary; the Sanitizer needs the option that is written into it."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, image = Path(folder) / "patch.ptx", Path(folder) / "patch.fatbin"
        options = ["-ptx", "-arch=compute_75", "--keep-device-functions", "-o", str(ptx)]
        subprocess.run([nvcc, *options, str(FOLDER / "patch.cu")], check=True)  # noqa: S603
        ptx.write_text(shorten(ptx.read_text()))
        packed = ["--cmdline=--compile-as-tools-patch", "--compress-mode=speed", "-64"]
        what = [f"--create={image}", *packed, f"--image3=kind=ptx,sm=70,file={ptx}"]
        fatbinary = Path(nvcc).with_name("fatbinary") if "/" in nvcc else "fatbinary"
        subprocess.run([fatbinary, *what], check=True)  # noqa: S603
        return image.read_bytes()


def shorten(ptx: str) -> str:
    """Drop what says which compiler made it, and names that depend on where the file lies."""
    ptx = re.sub(r"//.*", "", ptx)
    ptx = re.sub(r"\.version [\d.]+\s+\.target sm_\d+", ".version 7.0 .target sm_70", ptx)
    ptx = re.sub(r"_ZN\d+_INTERNAL_\w+?(mark_of_warp)\w*?(?=_param_|\W)", r"\1", ptx)
    ptx = re.sub(r"_param_(\d+)", r"_\1", ptx)
    return re.sub(r"\s+", " ", ptx).strip()


def header_of(image: bytes) -> str:
    """Return it as an array in C."""
    padded = image.ljust(-(-len(image) // 8) * 8, b"\0")
    words = [f"{word:#018x}," for word in struct.unpack(f"<{len(padded) // 8}Q", padded)]
    rows = [" ".join(words[at : at + WORDS]) for at in range(0, len(words), WORDS)]
    return (
        "/* Made from patch.cu by .ci/patch.py: do not edit. */\n"
        "#include <stdint.h>\n\n/* clang-format off */\n"
        "static const uint64_t GML_PATCH_IMAGE[] = {\n    " + "\n    ".join(rows) + "\n};\n"
    )


if __name__ == "__main__":
    made = header_of(make_image(sys.argv[1]))
    if "--check" in sys.argv:
        sys.exit(made != HEADER.read_text())
    HEADER.write_text(made)
