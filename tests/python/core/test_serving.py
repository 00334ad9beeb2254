"""How a lake serves, and the lakes below PyTorch: the bindings of both, without PyTorch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import gmlake
from gmlake import Lake, _core

MIB = 1 << 20
ALLOC, FREE_REQUESTED, FREE = 1, 3, 2


@pytest.fixture
def host() -> Any:
    """A lake with real bytes."""
    with Lake("host", capacity="64MiB") as lake:
        yield lake


def events_of(lake: Lake) -> Any:
    """The history as an array of rows of eight-byte fields: id, size, address, ..., kind."""
    data, _ = lake.history()
    return np.frombuffer(data, dtype=np.uint64).reshape(-1, _core.REQUEST_BYTES // 8)


# ---- how a lake serves


def test_record_stream_takes_blocks_and_addresses(host: Lake) -> None:
    block = host.allocate(MIB)
    host.record_stream(block, 3)
    host.record_stream(block.address, stream=4)
    host.free(block)
    with pytest.raises(ValueError, match="no live block"):
        host.record_stream(12345, 3)
    with pytest.raises(ValueError, match="must be from 0"):
        host.record_stream(1, -1)
    with Lake("host", capacity="4MiB") as other:
        foreign = other.allocate(1)
        with pytest.raises(ValueError, match="another lake"):
            host.record_stream(foreign, 1)


def test_a_limit_holds_until_it_is_lifted(host: Lake) -> None:
    host.set_limit(4 * MIB)
    with pytest.raises(gmlake.OutOfMemoryError):
        host.allocate(6 * MIB)
    host.set_limit(0)
    host.free(host.allocate(6 * MIB))
    with pytest.raises(ValueError, match="size must be from 0"):
        host.set_limit(-1)


def test_pools_begin_end_and_are_released(host: Lake) -> None:
    host.begin_pool(1, 2)
    with pytest.raises(ValueError, match="not begun"):
        host.end_pool(2, 1)
    host.end_pool(1, 2)
    with pytest.raises(ValueError, match="not begun"):
        host.end_pool(1, 2)
    host.release_pool(1, 2)
    with pytest.raises(ValueError, match="not in use"):
        host.release_pool(1, 2)
    with pytest.raises(TypeError):
        host.begin_pool(1)  # type: ignore[call-arg]


def test_history_keeps_the_youngest(host: Lake) -> None:
    assert host.history() == (b"", 0)
    host.free(host.allocate(2 * MIB))
    host.keep_history(4)
    for size in (1, 2):
        host.free(host.allocate(size * MIB))
    data, total = host.history()
    assert (len(data), total) == (4 * _core.REQUEST_BYTES, 6)
    rows = events_of(host)
    assert (rows[:, 5] & 0xFFFFFFFF).tolist() == [FREE, ALLOC, FREE_REQUESTED, FREE]
    assert rows[:, 1].tolist() == [MIB, 2 * MIB, 2 * MIB, 2 * MIB]
    host.keep_history(0)
    assert host.history() == (b"", 0)


def test_a_closed_lake_serves_nobody() -> None:
    lake = Lake("sim")
    lake.close()
    for call in (
        lambda: lake.record_stream(1, 1),
        lambda: lake.set_limit(1),
        lambda: lake.begin_pool(1, 1),
        lambda: lake.keep_history(1),
        lake.history,
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


# ---- below PyTorch: each in a process of its own, since its lakes are never closed

USE = """
import ctypes
import sys
from gmlake import Lake, _core

functions = _core.interop_functions()
pointer, size, device = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
alloc = ctypes.CFUNCTYPE(pointer, pointer, size, device)(functions["alloc"])
free = ctypes.CFUNCTYPE(None, pointer, pointer, device)(functions["free"])
"""


def run(code: str) -> None:
    """Run a program in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-c", USE + code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_lakes_below_pytorch_are_lent_and_never_closed() -> None:
    run("""
assert _core.torch_devices() == () and _core.torch_lake(Lake, 1) is None
_core.torch_configure("host", "stitch", 1 << 26, (("chunk_size", 1 << 22),))
address = alloc(None, 1 << 20, 1)
assert _core.torch_devices() == (1,) and _core.torch_fallback(1) == ""

class Mine(Lake):
    pass

with _core.torch_lake(Mine, 1) as lake:
    assert type(lake) is Mine and lake.stats()["reserved_bytes"] == 1 << 22
lake.close()
assert not lake.closed and lake.stats()["live_blocks"] == 1
del lake
references = sys.getrefcount(Mine)
for _ in range(100):
    _core.torch_lake(Mine, 1).stats()
assert sys.getrefcount(Mine) == references
lake = _core.torch_lake(_core.Lake, 1)
lake.check()
lake.record_stream(address, 5)
free(None, address, 1)
lake.trim()
assert lake.stats()["live_blocks"] == 0
free(None, address, 1)
assert lake.stats()["frees"] == 1
""")


def test_settings_of_all_lakes_below_pytorch() -> None:
    run("""
_core.torch_configure("host", "stitch", 1 << 26)
_core.torch_keep_history(10)
free(None, alloc(None, 3 << 20, 0), 0)
lake = _core.torch_lake(Lake, 0)
assert lake.stats()["reserved_bytes"] == 4 << 20
assert lake.history()[1] == 4  # with the segment
_core.torch_configure("host", "stitch", 1 << 26)
try:
    _core.torch_configure("host", "stitch", 1 << 27)
except ValueError as error:
    assert "in use already" in str(error)
else:
    raise AssertionError
""")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"policy": "magic"}, "magic"),
        ({"policy": "stitch", "settings": (("nonsense", 1),)}, "nonsense"),
        ({"policy": "stitch", "handle_type": 1 << 32}, "handle_type"),
        ({"policy": "stitch", "capacity": -1}, "capacity"),
        ({"driver": "a driver with a name beyond all measure", "policy": "stitch"}, "cuda, host"),
    ],
)
def test_bad_configurations_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _core.torch_configure(**({"driver": "host"} | arguments))


def test_bad_arguments_are_refused() -> None:
    kinds: Any = (int, "Lake", gmlake.Block)
    for kind in kinds:
        with pytest.raises(TypeError, match="Lake or a subclass"):
            _core.torch_lake(kind, 0)
    with pytest.raises(ValueError, match="max_events"):
        _core.torch_keep_history(-1)
    assert _core.torch_lake(Lake, -1) is None
    assert _core.torch_lake(Lake, 1 << 20) is None
    assert _core.torch_fallback(-1) == ""
