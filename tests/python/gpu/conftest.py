"""Tests of this folder are skipped where there is no GPU."""

from __future__ import annotations

import pytest

import gmlake
from gmlake.lake import device_describe


@pytest.fixture(autouse=True, scope="module")
def _device() -> None:
    try:
        device_describe("cuda")
    except gmlake.Error as error:
        pytest.skip(f"no CUDA device: {error}")
