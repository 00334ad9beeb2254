"""What a request for memory that is cached costs in C: a change that makes it longer says so here.

Counted without optimization, by the compiler's hooks at the beginning of each function.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ROOMS = ("base", "core", "driver", "lake", "policy/*")
FUNCTIONS_AND_FILES = {"allocate": (61, 19), "free": (36, 15)}  # one more where nothing lives
PROGRAM = """
#include "gmlake.h"
#include <stdio.h>
#include <stdlib.h>
enum { MOST = 4096 };
static void *called[MOST];
static int count, is_counted;
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *function, void *from) {
    (void)from;
    if (is_counted && count < MOST) {
        called[count++] = function;
    }
}
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *function, void *from) {
    (void)function, (void)from;
}
__attribute__((no_instrument_function)) static void tell(const char *name) {
    is_counted = 0;
    for (int i = 0; i < count; i++) {
        printf("%s %p\\n", name, called[i]);
    }
    count = 0;
}
__attribute__((no_instrument_function)) int main(void) {
    char reason[512];
    gml_lake *lake = NULL;
    gml_address address = 0;
    const gml_lake_config config = {.driver = "sim", .policy = "stitch"};
    if (gml_lake_open(&config, &lake, reason, sizeof reason) != GML_OK) {
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        if (gml_lake_allocate(lake, 40 << 20, 0, &address) != GML_OK ||
            gml_lake_free(lake, address) != GML_OK) {
            return 1;
        }
    }
    is_counted = 1;
    (void)gml_lake_allocate(lake, 40 << 20, 0, &address);
    tell("allocate");
    is_counted = 1;
    (void)gml_lake_free(lake, address);
    tell("free");
    return gml_lake_close(lake) != GML_OK;
}
"""


@pytest.mark.long
@pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("addr2line")), reason="gcc or addr2line is missing"
)
def test_a_cached_block_takes_as_many_functions_as_are_written_here(tmp_path: Path) -> None:
    source, program = tmp_path / "path.c", tmp_path / "path"
    source.write_text(PROGRAM)
    files = [path for room in ROOMS for path in sorted((ROOT / "csrc").glob(f"{room}/*.c"))]
    files += sorted((ROOT / "csrc" / "policy").glob("*.c"))
    options = ["-std=c11", "-D_GNU_SOURCE", "-O0", "-g", "-no-pie", "-finstrument-functions", "-w"]
    options += ['-DGMLAKE_VERSION="0"', f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'include'}"]
    command = ["gcc", *options, str(source), *map(str, files), "-o", str(program)]
    subprocess.run([*command, "-lpthread", "-ldl", "-lm"], check=True)
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split("\n")
    seen: dict[str, set[str]] = {name: set() for name in FUNCTIONS_AND_FILES}
    for line in filter(None, lines):
        name, _, function = line.partition(" ")
        seen[name].add(function)
    assert {name: cost(program, found) for name, found in seen.items()} == FUNCTIONS_AND_FILES


def cost(program: Path, functions: set[str]) -> tuple[int, int]:
    """Return how many functions there are, and in how many files."""
    command = ["addr2line", "-e", str(program), *functions]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return len(functions), len({line.partition(":")[0] for line in told.splitlines()})
