"""Every entry point of the extension, many times: memory must not grow."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from developer import hooks, needs_lab
from gmlake import _core
from gmlake.trace import REQUEST
from leaks import check_growth
from recording import BASE, alloc, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
PICKLE = pickle.dumps({"a": [1, 2.5, "x", None, (True, 2**63)]}, 4)
EVENTS: list[Any] = [
    alloc(BASE, 512),
    {"action": "oom"},
    alloc(BASE, 512, frames=[{}], text="x y"),
    None,
]
RECORDED = pickle.dumps(snapshot(EVENTS * 3), 4)


def requests() -> bytes:
    rows = [(i, MIB * (i + 1), 0, 0, 0, 1, 0) for i in range(8)]
    rows += [(i, 0, 0, 0, 0, 2, 0) for i in range(8)]
    return np.array(rows, REQUEST).tobytes()


REQUESTS = requests()
RECORD = np.array([1 << 40, 20 * MIB, 0, 0], np.uint64)
BLOCK = np.array([0, 1 << 40, 4 * MIB, 4 * MIB], np.uint64)


def use_lake() -> None:
    for driver in ("sim", "host"):
        with gmlake.Lake(driver, "stitch", "64MiB", frag_limit=MIB) as lake:
            blocks = [lake.allocate(size, 1) for size in (0, 100, 3 * MIB, 9 * MIB)]
            repr(blocks)
            repr(lake)
            for block in blocks:
                _ = (block.address, block.size, block.requested_size, block.stream, block.state)
                _ = (int(block), block.is_live, block.lake)
            lake.free(blocks[1])
            lake.free(blocks[2].address)
            _ = (lake.stats(), lake.spans(), lake.trim())
            lake.check()
            lake.reset_peaks()
            _ = lake.arena
            del blocks
        with gmlake.Lake(driver, capacity="64MiB", arena="16MiB") as lake:
            _ = (lake.allocate(9 * MIB), lake.arena)


def use_serving() -> None:
    with gmlake.Lake("host", capacity="64MiB") as lake:
        lake.keep_history(100)
        lake.set_limit(32 * MIB)
        block = lake.allocate(3 * MIB)
        lake.record_stream(block, 7)
        lake.free(block)
        _ = lake.stream_pairs()
        lake.begin_pool(1, 2)
        lake.end_pool(1, 2)
        lake.release_pool(1, 2)
        _ = (lake.history(), lake.torch_stats())


def use_recording() -> None:
    with tempfile.TemporaryDirectory() as folder, gmlake.Lake("host", capacity="64MiB") as lake:
        lake.keep_history(100)
        _core.set_site(_core.site() + 1)
        lake.note_mark(3)
        lake.free(lake.allocate(3 * MIB))
        _ = (lake.history_sites(), lake.snapshot())
        lake.publish(f"{folder}/counters")  # Python 3.12 keeps the parts of every Path for good
        lake.publish(None)
    _core.set_site(0)


def use_pickles() -> None:
    _core.read_plain_pickle(PICKLE, 100)
    for data, parts in ((PICKLE, 2), (PICKLE[:-9], 100), (b"", 100), (b"\x80\x04x", 100)):
        with pytest.raises(ValueError, match=r"\(at byte \d+\)"):
            _core.read_plain_pickle(data, parts)
    _core.read_pickled_events(RECORDED, 1000)
    _core.read_pickled_events(RECORDED.replace(b"device_traces", b"nothing_known"), 1000)
    for data, parts in ((RECORDED, 9), (RECORDED[:-9], 1000), (b"", 100)):
        with pytest.raises(ValueError, match=r"\(at byte \d+\)"):
            _core.read_pickled_events(data, parts)


class In(_core.Inside):
    is_everywhere = True

    def __init__(self, number: int = 4) -> None:
        self._number = number

    def region(self) -> tuple[int, bool, bool]:
        return self._number, False, False


class At(_core.Turn):
    def __init__(self, number: int = 4) -> None:
        self._number = number

    def number(self) -> int:
        return self._number


def use_lakes_that_sleep_together() -> None:
    with (
        gmlake.Lake("host", capacity="64MiB", can_sleep=True) as lake,
        gmlake.Lake("host") as other,
    ):
        lake.allocate(MIB)
        _core.sleep_lakes((("the lake", lake, "cpu", None),))
        _core.wake_lakes((("the lake", lake, None, None),))
        for wrong in (
            (("the", lake, "tape", None),),
            (("the", lake, None, None), ("of", other, None, None)),
            (1,),
        ):
            with contextlib.suppress(gmlake.Error, ValueError, TypeError):
                _core.sleep_lakes(wrong)  # type: ignore[arg-type]


def use_lakes_below_pytorch() -> None:
    # None is open here, as they could not be closed; test_serving.py has open ones.
    _core.torch_configure("cuda", "stitch", MIB, (("growth", 4 * MIB),))
    _core.torch_configure("cuda", "stitch")
    _core.torch_keep_history(0)
    _ = _core.interop_functions()
    _ = (_core.torch_lake(gmlake.Lake, 0), _core.torch_devices(), _core.torch_fallback(0))
    _ = (_core.torch_region(), _core.torch_has_entered(), _core.torch_region_lakes())
    with In() as inside, inside:
        pass
    with contextlib.suppress(ValueError):
        In(-1).__enter__()
    with At() as turn, turn:
        _ = (_core.torch_turn(), _core.torch_last_graph())
    for wrong in (0, -1):
        with contextlib.suppress(ValueError, OverflowError):
            At(wrong).__enter__()
    with contextlib.suppress(ValueError):
        _core.torch_spoil_graph(1, 0)
    _core.torch_set_margin(0)
    _core.torch_note_refusals("")
    _core.torch_set_relief(lambda _device, _size: bytes(MIB) == b"")
    _core.torch_set_relief(None)
    _core.torch_share(0, "/tmp/gmlake-none", 1, 2)  # noqa: S108 (it is gone at once)
    _ = (_core.torch_sharing(0), _core.torch_ask_neighbours(0, MIB))
    _core.torch_make_room(0, MIB)
    _core.torch_unshare()
    for path, weight in (("page", 1), ("/page", 0), ("/page", 1 << 32)):
        with contextlib.suppress(ValueError):
            _core.torch_share(0, path, 0, weight)
    _core.interop_functions()
    with gmlake.Lake("host", capacity="64MiB") as lake:
        _ = (_core.interop_wait_device(lake), _core.interop_wait_stream(lake, 1))


def use_elastic_memory() -> None:
    with gmlake.Lake("host", capacity="64MiB") as lake:
        address = lake.open_elastic(8 * MIB, 0)
        lake.resize_elastic(address, 3 * MIB, MIB)
        _ = (lake.elastic_bytes(address), lake.describe_elastic(address))
        _ = _core.dlpack_bytes(lake, address, 100, 1, 0)
        with contextlib.suppress(ValueError):
            lake.resize_elastic(address, 9 * MIB, 0)
        lake.close_elastic(address)
        buffer = lake.elastic(8 * MIB)
        buffer.resize(3 * MIB)
        _ = buffer.dlpack()
        block = lake.allocate(MIB)
        _ = lake.count_chunks(block.address)
        with contextlib.suppress(ValueError):
            lake.count_chunks(1)


def use_buffers() -> None:
    with gmlake.Lake("host", capacity="64MiB") as lake:
        block = lake.allocate(MIB)
        view = memoryview(block)
        view[0] = 1
        with contextlib.suppress(BufferError):
            lake.free(block)
        view.release()
        lake.free(block)


def use_replay() -> None:
    with gmlake.Lake("sim", "caching", "1TiB") as lake:
        run = _core.Replay(lake, 8)
        run.restore(RECORD, BLOCK)
        run.follow_segments()
        run.free_all()
        addresses = np.zeros(16, np.uint64)
        run.run(REQUESTS, addresses)
        lake.torch_stats()


def use_marks() -> None:
    with gmlake.Lake() as lake:
        lake.mark()


def use_test_hooks() -> None:
    choose = _core.test_hooks  # type: ignore[attr-defined]
    with hooks(fail_call=3, skip_calls=("event_record",), check_order=True), gmlake.Lake() as lake:
        with contextlib.suppress(gmlake.Error):
            lake.allocate("5MiB")
        choose(**choose())
        with pytest.raises(ValueError, match="no driver call"):
            choose(skip_calls=("event_record", "x"))


def use_wrongly() -> None:
    wrong: list[Callable[[], object]] = [
        lambda: gmlake.Lake("nothing"),
        lambda: gmlake.Lake(policy="nothing"),
        lambda: gmlake.Lake(nothing=1),
        lambda: _core.Lake("sim", settings=(("growth", 1), ("bad",))),  # type: ignore[arg-type]
        lambda: _core.Lake("sim", settings=(3,)),  # type: ignore[arg-type]
        lambda: _core.device_describe("nothing"),
        lambda: _core.device_describe("cuda", 63),
        _core.Block,
    ]
    with gmlake.Lake(capacity="64MiB") as lake, gmlake.Lake() as other:
        block = other.allocate(5)
        run = _core.Replay(lake, 1)
        wrong += [
            lambda: lake.allocate(2**70),
            lambda: lake.allocate(2**47),
            lambda: lake.allocate("x"),
            lambda: lake.free(12345),
            lambda: lake.free(block),
            lambda: lake.free("x"),  # type: ignore[arg-type]
            lambda: memoryview(block),
            lambda: lake.record_stream(block, 1),
            lambda: lake.record_stream("x", 1),  # type: ignore[arg-type]
            lambda: lake.record_stream(block, -1),
            lambda: _core.interop_lake(gmlake.Lake, -1),
            lambda: _core.interop_serving_lake(gmlake.Lake, -1),
            lambda: lake.set_limit(-1),
            lambda: lake.end_pool(1, 1),
            lambda: lake.keep_history(2**57),
            lambda: _core.set_site(-1),
            lambda: lake.note_mark(-1),
            lambda: lake.publish("/nowhere/at/all"),
            lambda: lake.publish(3),  # type: ignore[arg-type]
            lambda: _core.torch_configure("host", "nothing"),
            lambda: _core.torch_configure("host", "stitch", 0, (("growth", 1), ("bad",))),  # type: ignore[arg-type]
            lambda: _core.torch_lake(int, 0),  # type: ignore[type-var]
            lambda: run.run(b"x"),
            lambda: run.run(REQUESTS),
            lambda: run.run(REQUESTS, bytearray(3)),
            lambda: run.restore(RECORD, BLOCK),
            lambda: run.restore(b"x", b"y"),
            lambda: run.restore(RECORD, b"y"),
            lambda: _core.Replay(lake, 2**62),
            lambda: _core.Replay(3, 1),  # type: ignore[arg-type]
        ]
        for use in wrong:
            with contextlib.suppress(
                gmlake.Error, ValueError, TypeError, OSError, BufferError, MemoryError
            ):
                use()
                pytest.fail("this should have been refused")


def use_descriptions() -> None:
    _ = (
        _core.knobs(),
        _core.policies(),
        _core.policy_help(),
        _core.device_describe("sim"),
        _core.__version__,
    )
    with gmlake.Lake() as lake:
        assert lake.device_name
    _core.check_knobs((("growth", 4 << 20),), 2 << 20)


@pytest.mark.slow
def use_sleep() -> None:
    with gmlake.Lake("host", can_sleep=True) as lake:
        block = lake.allocate("1MiB")
        for backup in ("cpu", "disk", None):
            lake.sleep(backup)
            _ = (lake.is_asleep, lake.saved(block.address, 10), lake.saved(1, 1))
            with pytest.raises(ValueError, match="asleep already"):
                lake.sleep(backup)
            lake.wake()
        lake.forget_saved()


@pytest.mark.parametrize(
    "use",
    [
        *(
            use_lake,
            use_sleep,
            use_serving,
            use_lakes_below_pytorch,
            use_elastic_memory,
            use_lakes_that_sleep_together,
            use_buffers,
            use_replay,
            use_wrongly,
        ),
        *(use_marks, use_recording, use_pickles),
        *(use_descriptions, pytest.param(use_test_hooks, marks=needs_lab)),
    ],
)
def test_memory_does_not_grow(use: Callable[[], None]) -> None:
    check_growth(use)


def test_every_entry_point_is_used_above() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    for owner in (_core, _core.Lake, _core.Block, _core.Replay):
        for name in vars(owner):
            if not name.startswith("_") and not name.endswith("_BYTES"):
                assert f".{name}" in text or name in ("close", "closed", "access"), name
