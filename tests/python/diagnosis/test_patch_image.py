"""The patch that is committed is what NVIDIA's compiler makes of its source."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys

import pytest

from places import ROOT

COLLECT = ROOT / "csrc" / "diagnosis" / "collect"


def test_it_has_the_functions_that_the_collector_names() -> None:
    text = (COLLECT / "patch_image.h").read_text()
    image = b"".join(struct.pack("<Q", int(word, 16)) for word in re.findall(r"0x\w{16}", text))
    assert image.startswith(b"\x50\xed\x55\xba")
    assert b"--compile-as-tools-patch" in image[:128]  # else the driver drops unused functions
    named = set(re.findall(r'"(gml_patch_\w+)"', (COLLECT / "accesses.c").read_text()))
    made = set(re.findall(r"PATCH int (gml_patch_\w+)\(", (COLLECT / "patch.cu").read_text()))
    assert named == made


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_it_is_what_nvcc_makes_of_the_source() -> None:
    nvcc = str(shutil.which("nvcc"))
    command = [sys.executable, str(ROOT / ".ci" / "patch.py"), nvcc, "--check"]
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    if "release 13.0" not in version.stdout:
        pytest.skip("another nvcc makes other PTX")
    assert subprocess.run(command, check=False).returncode == 0
