"""Lakes that sleep, with real bytes on the host: what Lake.sleep() and wake() say and keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.lake import Block

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


@pytest.fixture(params=gmlake.policies())
def lake(request: pytest.FixtureRequest) -> Iterator[gmlake.Lake]:
    with gmlake.Lake("host", request.param, "64MiB", can_sleep=True) as opened:
        yield opened


def content(block: Block) -> bytes:
    return bytes(memoryview(block)[::4096])


def filled(lake: gmlake.Lake, size: int, first: int) -> Block:
    block = lake.allocate(size)
    memoryview(block)[:] = bytes((first + i) % 251 for i in range(size))
    return block


def test_contents_and_addresses_stay(lake: gmlake.Lake) -> None:
    blocks = [filled(lake, size, size) for size in (700, 3 * MIB, 5 * MIB + 512)]
    before = [(block.address, content(block)) for block in blocks]
    slept = lake.sleep("cpu")
    assert lake.is_asleep
    assert slept["released_bytes"] >= 8 * MIB
    assert slept["saved_bytes"] == 8 * MIB + 512 + 700
    woken = lake.wake()
    assert not lake.is_asleep
    assert woken["saved_bytes"] == slept["saved_bytes"]
    assert [(block.address, content(block)) for block in blocks] == before
    lake.check()
