"""Programs that open CUDA's runtime by its path and look its functions up there."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.standin.test_launcher import run

if TYPE_CHECKING:
    from pathlib import Path

SHARED = "const char *cudaMalloc(void) { return NAME; } const char *name(void) { return NAME; }\n"
NEXT = """#define _GNU_SOURCE
#include <dlfcn.h>
const char *next(void) { return ((const char *(*)(void))dlsym(RTLD_NEXT, "name"))(); }
"""


def build(folder: Path, name: str, code: str) -> Path:
    """Compile a library that says its name."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(code.replace("NAME", f'"{name}"'), encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)  # noqa: S607
    return library


def test_the_next_function_is_the_one_after_whoever_asks(tmp_path: Path) -> None:
    libraries = [build(tmp_path, "one", SHARED + NEXT), build(tmp_path, "two", SHARED)]
    code = "cuda.next.restype = ctypes.c_char_p; print(cuda.next().decode())"
    done = run(code, variables={"LD_PRELOAD": ":".join(map(str, libraries))})
    assert done.stdout == "two\n"
