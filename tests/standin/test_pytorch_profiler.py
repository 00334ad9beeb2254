"""What PyTorch's own tests ask of the memory that its profiler sees, in our words."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.asking import MIB, block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Session:
    """A profile of memory, and what its trace says."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "trace.json"
        self.profile: Any = torch.profiler.profile(
            profile_memory=True, record_shapes=True, with_stack=True, acc_events=True
        )

    @contextmanager
    def run(self) -> Iterator[None]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.profile:
                yield

    def memory(self, device: int = 0) -> list[dict[str, int]]:
        """Return the records of a device's memory, in the order of their times."""
        if not self.path.exists():  # a profile is exported once
            self.profile.export_chrome_trace(str(self.path))
        records = json.loads(self.path.read_text(encoding="utf-8"))["traceEvents"]
        found = [one for one in records if one["name"] == "[memory]"]
        found.sort(key=lambda one: (one["ts"], one["args"]["Ev Idx"]))
        return [
            one["args"]
            for one in found
            if (one["args"]["Device Type"], one["args"]["Device Id"]) == (1, device)
        ]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    torch.zeros(1, device="cuda")
    torch.zeros(1, device="cuda:1")
    return Session(tmp_path)


def test_what_comes_and_goes_adds_up_to_nothing(session: Session) -> None:
    with session.run():
        held = [block(mib) for mib in (3, 30, 0.1)]
        held.clear()
    changes = [one["Bytes"] for one in session.memory()]
    assert sum(changes) == 0
    assert [change for change in changes if change > 0] == [
        3 * MIB,
        30 * MIB,
        -(-MIB // 10 // 512) * 512,
    ]


def test_records_tell_what_is_allocated_after_them(session: Session) -> None:
    before = torch.cuda.memory_allocated()
    with session.run():
        held = [block(3), block(30)]
        held.pop(0)
        held.clear()
    records = session.memory()
    running = before
    for record in records:
        running += record["Bytes"]
        assert record["Total Allocated"] == running
    assert running == before


def test_records_tell_what_is_reserved(session: Session) -> None:
    with session.run():
        held = block(30)
        reserved = torch.cuda.memory_reserved()
        del held
    assert [one["Total Reserved"] for one in session.memory()] == [reserved] * 2


def test_records_tell_the_address(session: Session) -> None:
    with session.run():
        held = block(30)
        address = held.data_ptr()
        del held
    assert [one["Addr"] for one in session.memory()] == [address] * 2


def test_records_of_devices_are_apart(session: Session) -> None:
    with session.run():
        held = [block(3), block(5, "cuda:1")]
        held.clear()
    changes = {device: [one["Bytes"] for one in session.memory(device)] for device in (0, 1)}
    assert changes == {0: [3 * MIB, -3 * MIB], 1: [5 * MIB, -5 * MIB]}


def test_what_lived_before_goes_within(session: Session) -> None:
    held = [block(30)]
    with session.run():
        held.clear()
    assert [one["Bytes"] for one in session.memory()] == [-30 * MIB]


def test_nothing_is_recorded_afterwards(session: Session) -> None:
    with session.run():
        held = [block(3)]
    held.append(block(30))
    held.clear()
    assert [one["Bytes"] for one in session.memory()] == [3 * MIB]


def test_operators_are_charged_for_their_memory(session: Session) -> None:
    x = torch.zeros(MIB, device="cuda")
    with session.run():
        y = x + 1
        z = y.clone()
    charged: dict[str, int] = {}
    for row in session.profile.key_averages():
        charged[row.key] = row.self_device_memory_usage
    assert charged["aten::add"] == 4 * MIB
    assert charged["aten::empty_strided"] + charged.get("aten::empty_like", 0) == 4 * MIB
    assert z.numel() == MIB


def test_a_backward_is_charged_for_its_memory(session: Session) -> None:
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    with session.run():
        (x * 2).sum().backward()
    change = sum(one["Bytes"] for one in session.memory())
    assert change == torch.cuda.memory_allocated() - before
    assert change >= 4 * MIB


def test_memory_of_a_pool_and_a_graph_is_recorded(session: Session) -> None:
    pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
    x = torch.zeros(MIB, device="cuda")
    handle: Any = torch.cuda.graph_pool_handle()
    with session.run():
        with torch.cuda.use_mem_pool(pool):
            inside = block(20)
        with torch.cuda.graph(graph, pool=handle):
            y = x + 1
        graph.replay()
    torch.cuda.synchronize()
    recorded = {one["Addr"]: one["Bytes"] for one in session.memory() if one["Bytes"] > 0}
    assert recorded[inside.data_ptr()] == 20 * MIB
    assert recorded[y.data_ptr()] == 4 * MIB


def test_memory_of_all_threads_is_recorded(session: Session) -> None:
    before = torch.cuda.memory_allocated()

    def work() -> None:
        for _ in range(10):
            block(0.5)

    with session.run():
        work()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert torch.cuda.memory_allocated() == before
    assert sum(one["Bytes"] for one in session.memory()) == 0


def test_the_end_of_memory_is_recorded(session: Session) -> None:
    with session.run(), pytest.raises(torch.OutOfMemoryError):
        block(1 << 22)
    session.profile.export_chrome_trace(str(session.path))
    text = session.path.read_text(encoding="utf-8")
    assert "[OutOfMemory]" in text


@pytest.mark.filterwarnings("ignore:.export_memory_timeline:FutureWarning")
def test_a_timeline_of_memory_is_made(session: Session, tmp_path: Path) -> None:
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    with session.run():
        model(torch.zeros(64, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    path = tmp_path / "timeline.json"
    session.profile.export_memory_timeline(str(path), device="cuda:0")
    times, sizes = json.loads(path.read_text(encoding="utf-8"))
    assert len(times) == len(sizes) > 4
    assert max(map(sum, sizes)) >= 256 * 256 * 4


def test_profiles_follow_each_other(tmp_path: Path) -> None:
    torch.zeros(1, device="cuda")
    for _ in range(3):
        session = Session(tmp_path)
        session.path.unlink(missing_ok=True)
        with session.run():
            block(3)
        assert [one["Bytes"] for one in session.memory()] == [3 * MIB, -3 * MIB]
