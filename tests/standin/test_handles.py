"""Programs that open CUDA's runtime by its path and look its functions up there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.standin.test_launcher import run

RUNTIME = Path(torch.__file__).parents[1] / "nvidia" / "cu13" / "lib" / "libcudart.so.13"
ASKED = """
import json
library, n = ctypes.CDLL(PATH), ctypes.c_int(-1)
address = lambda of, name: ctypes.cast(getattr(of, name), ctypes.c_void_p).value
print(json.dumps({
    'devices': [library.cudaGetDeviceCount(ctypes.byref(n)), n.value],
    'same': address(library, 'cudaMalloc') == address(cuda, 'cudaMalloc'),
    'unknown': [hasattr(library, name) for name in ('cudaNothing', 'nothing')],
}))
"""
SHARED = "const char *cudaMalloc(void) { return NAME; } const char *name(void) { return NAME; }\n"
NEXT = """#define _GNU_SOURCE
#include <dlfcn.h>
const char *next(void) { return ((const char *(*)(void))dlsym(RTLD_NEXT, "name"))(); }
"""


@pytest.fixture(scope="module", params=["libcudart.so.13", "libcudart.1a2b3c4d.so.13"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a program sees that opens the runtime, also under the name that a wheel gave it."""
    path = tmp_path_factory.mktemp("wheel") / request.param
    path.symlink_to(RUNTIME)
    done = run(f"PATH = {str(path)!r}" + ASKED, "--devices", "3")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_functions_of_the_runtime_are_the_stand_ins(told: dict[str, Any]) -> None:
    assert told["devices"] == [0, 3]
    assert told["same"] is True


def test_there_are_no_more_functions_than_the_runtime_has(told: dict[str, Any]) -> None:
    assert told["unknown"] == [False, False]


def build(folder: Path, name: str, code: str) -> Path:
    """Compile a library that says its name."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(code.replace("NAME", f'"{name}"'), encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)  # noqa: S607
    return library


def test_other_libraries_keep_their_functions(tmp_path: Path) -> None:
    library = build(tmp_path, "hook", SHARED)
    code = f"own = ctypes.CDLL({str(library)!r}).cudaMalloc; own.restype = ctypes.c_char_p\n"
    assert run(code + "print(own().decode())").stdout == "hook\n"


def test_the_next_function_is_the_one_after_whoever_asks(tmp_path: Path) -> None:
    libraries = [build(tmp_path, "one", SHARED + NEXT), build(tmp_path, "two", SHARED)]
    code = "cuda.next.restype = ctypes.c_char_p; print(cuda.next().decode())"
    done = run(code, variables={"LD_PRELOAD": ":".join(map(str, libraries))})
    assert done.stdout == "two\n"
