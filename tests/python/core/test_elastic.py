"""Elastic buffers with real bytes on the host: what Lake.elastic() gives, keeps and refuses."""

from __future__ import annotations

import ctypes
import weakref

import pytest

import gmlake
from gmlake.lake import ElasticMemory
from policies import lending_policies

MIB = 1 << 20


def look(lake: gmlake.Lake, buffer: ElasticMemory) -> ctypes.Array[ctypes.c_ubyte]:
    kind = ctypes.c_ubyte * buffer.memory
    return kind.from_address(lake.elastic_bytes(buffer.address))


@pytest.fixture(params=lending_policies())
def lake(request: pytest.FixtureRequest) -> gmlake.Lake:
    return gmlake.Lake("host", request.param, "64MiB")


def test_memory_follows_and_contents_stay(lake: gmlake.Lake) -> None:
    buffer = lake.elastic("31MiB")
    assert (buffer.size, buffer.memory, buffer.chunk) == (32 * MIB, 0, 2 * MIB)
    assert lake.stats()["reserved_bytes"] == 0
    buffer.resize(5 * MIB)
    assert buffer.memory == 6 * MIB
    look(lake, buffer)[:] = [i % 251 for i in range(6 * MIB)]
    buffer.resize(20 * MIB)
    assert bytes(look(lake, buffer)[: 6 * MIB : 4099]) == bytes(
        i % 251 for i in range(0, 6 * MIB, 4099)
    )
    buffer.resize(3 * MIB)
    assert buffer.memory == 4 * MIB
    assert lake.stats()["live_bytes"] == 4 * MIB
    assert lake.describe_elastic(buffer.address)["memory_bytes"] == 4 * MIB
    lake.check()


def test_what_grows_may_take_more_ahead(lake: gmlake.Lake) -> None:
    buffer = lake.elastic("32MiB")
    buffer.resize(4 * MIB, ahead=5 * MIB)
    assert buffer.memory == 10 * MIB == lake.describe_elastic(buffer.address)["memory_bytes"]
    buffer.resize(3 * MIB, ahead=5 * MIB)
    assert buffer.memory == 4 * MIB
    other = lake.elastic("64MiB")
    other.resize(60 * MIB, ahead=4 * MIB)
    assert other.memory == 60 * MIB


def test_a_capsule_that_nobody_uses_lets_go(lake: gmlake.Lake) -> None:
    buffer = lake.elastic(4 * MIB)
    buffer.resize(4 * MIB)
    capsule = buffer.dlpack()
    seen = weakref.ref(buffer)
    del buffer
    assert seen() is not None
    del capsule
    assert seen() is None
    assert lake.stats()["live_bytes"] == 0


def test_what_is_wrong_is_said(lake: gmlake.Lake) -> None:
    with pytest.raises(ValueError, match=r"1 to 2\^48 bytes, not 0"):
        lake.elastic(0)
    buffer = lake.elastic(2 * MIB)
    with pytest.raises(ValueError, match="2097153B asked for of an elastic buffer of 2MiB"):
        buffer.resize(2 * MIB + 1)
    with pytest.raises(ValueError, match="size must be from 0"):
        buffer.resize(-1)
    buffer.close()
    buffer.close()
    assert repr(buffer).endswith("closed>")
    with pytest.raises(ValueError, match="this elastic buffer was closed"):
        buffer.resize(0)
    with pytest.raises(ValueError, match="no elastic buffer begins at 0x"):
        lake.describe_elastic(buffer.address)
    with (
        gmlake.Lake("host", "caching", "8MiB") as other,
        pytest.raises(gmlake.UnsupportedError, match="the policy stitch, or one around it"),
    ):
        other.elastic(MIB)
