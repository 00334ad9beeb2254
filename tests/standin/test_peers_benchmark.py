"""What benchmarks/gpu/peers.py and sleeping.py measure on GPUs beside other libraries.

Kernels do nothing here, so that pictures and speeds mean nothing. comfy-aimdo does not run here: it
wants calls of the driver that the stand-in does not have.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.gmlake_run import run_benchmark
from tests.standin.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BENCHMARKS = ROOT / "benchmarks"
MIB = 1 << 20


def run(program: str, folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Run a benchmark with its tiny size; return exit code, what it printed, and the ways."""
    words = ("--size", "tiny", "--output", "figures.json", *options)
    ended = run_benchmark(program, folder, *words, settings=("--backed", "--capacity", "2GiB"))
    output = folder / "figures.json"
    assert output.exists(), ended.output + ended.errors
    ways: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))["ways"]
    return ended.code, ended.output + ended.errors, ways


@pytest.mark.long
def test_every_way_takes_the_same_steps(tmp_path: Path) -> None:
    names = ("default", "expandable", "async", "stitch", "planned", "aimdo")
    options = ("--rounds", "2", "--steps", "3", "--ways", ",".join(names))
    code, printed, ways = run("gpu.peers", tmp_path, *options)
    assert tuple(ways) == names
    if not importlib.util.find_spec("comfy_aimdo"):
        assert ways["aimdo"] == {"failed": "not installed"}
        assert code == 0, printed
        assert "round 1, aimdo" not in printed
    del ways["aimdo"]
    for told in ways.values():
        assert 0 < told["weights_bytes"] < told["peak_allocated_bytes"]
        assert told["peak_allocated_bytes"] <= told["peak_reserved_bytes"] == told["device_bytes"]
        assert told["has_same_pictures"]
        assert [len(each) for each in told["seconds"].values()] == [2, 2, 2]
        assert told["repeated"]["own_calls"] == 0
        assert told["first"]["why"]  # CUPTI does not know this GPU
        assert told["repeated_calls"] == [None, None]
    for way in ("default", "stitch"):
        assert ways[way]["first"]["own_calls"] > 0
    assert ways["stitch"]["device_bytes"] < ways["default"]["device_bytes"]
    assert ways["planned"]["device_bytes"] == ways["stitch"]["device_bytes"]
    assert ways["planned"]["hit_rate"] > 0
    assert ways["planned"]["states"]["plan"] > ways["stitch"]["states"]["plan"] == 0


def test_a_way_that_does_not_exist_is_told(tmp_path: Path) -> None:
    ended = run_benchmark("gpu.peers", tmp_path, "--ways", "default,other")
    assert ended.code == 2
    assert "no way is called 'other'" in ended.errors


@pytest.mark.long
def test_models_sleep_in_each_way_that_is_installed(tmp_path: Path) -> None:
    names = ("gmlake", "compat", "torch_memory_saver_retained", "vllm_registered")
    options = ("--rounds", "2", "--ways", ",".join(names))
    _, printed, ways = run("gpu.sleeping", tmp_path, *options)
    assert tuple(ways) == names
    assert "host memory was not touched" not in printed
    for way in ("gmlake", "compat"):
        told = ways[way]
        assert [len(told[f"{part}_seconds"]) for part in ("sleep", "wake")] == [2, 2]
        assert told["first_sleep_seconds"] > 0
        assert max(told["asleep_bytes"]) + told["weight_bytes"] <= told["awake_bytes"]
    for way, package in ((names[2], "torch_memory_saver"), (names[3], "vllm")):
        if not importlib.util.find_spec(package):
            assert f"No module named '{package}'" in ways[way]["failed"]


# ---- made-up figures -----------------------------------------------------------------------------


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu.peers")


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu.sleeping")


class Cupti:
    """CUPTI, which refuses what it is told to refuse."""

    def __init__(self, *, subscribes: int = 0, enables: int = 0) -> None:
        self.answers = (subscribes, enables)
        self.callback: Any = None
        self.enabled: list[int] = []
        self.left = 0

    def cuptiSubscribe(self, subscriber: Any, callback: Any, _user: Any) -> int:  # noqa: N802
        subscriber._obj.value = 7  # noqa: SLF001 (what byref refers to)
        self.callback = callback
        return self.answers[0]

    def cuptiEnableDomain(self, enable: int, subscriber: Any, domain: int) -> int:  # noqa: N802
        assert (enable, subscriber.value) == (1, 7)
        self.enabled.append(domain)
        return self.answers[1]

    def cuptiUnsubscribe(self, subscriber: Any) -> int:  # noqa: N802
        assert subscriber.value == 7
        self.left += 1
        return 0

    def call(self, calls: Any, name: str) -> None:
        """Call a function of the driver, which begins and ends."""
        for site in (0, 1):
            data = calls._CallbackData(site, name.encode())  # noqa: SLF001
            self.callback(None, 1, 0, ctypes.pointer(data))


TAKING = (
    *("cuMemAlloc_v2", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync", "cuMemFree_v2"),
    *("cuMemFreeAsync", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap"),
    *("cuMemSetAccess", "cuMemAddressReserve", "cuMemAddressFree"),
)
OTHERS = (
    *("cuMemcpyAsync", "cuMemsetD8Async", "cuMemGetInfo_v2", "cuMemAllocHost_v2", "cuMemFreeHost"),
    *("cuMemHostAlloc", "cuLaunchKernel", "cuMemPoolTrimTo", "cudaMalloc", ""),
)


def test_calls_that_take_or_return_memory_are_counted_once(peers: Any) -> None:
    assert peers
    calls = importlib.import_module("gpu.calls")
    library = Cupti()
    with calls.Calls(library) as counting:
        for name in (*TAKING, *OTHERS, TAKING[0]):
            library.call(calls, name)
        assert library.left == 0
    assert counting.told() == {**dict.fromkeys(TAKING, 1), TAKING[0]: 2}
    assert (library.enabled, library.left) == ([1], 1)


@pytest.mark.parametrize(("refusals", "left"), [({"subscribes": 39}, 0), ({"enables": 39}, 1)])
def test_where_nothing_can_be_counted_no_figure_is_told(
    peers: Any, refusals: dict[str, int], left: int
) -> None:
    assert peers
    calls = importlib.import_module("gpu.calls")
    library = Cupti(**refusals)
    with calls.Calls(library) as counting:
        pass
    assert counting.told() is None
    assert counting.why == "CUPTI refused: 39"
    assert library.left == left


def process(
    first: dict[str, int] | None = None,
    pictures: tuple[str, ...] = ("a",),
    size: int = 2,
    scale: float = 1,
    repeated: int = 0,
) -> dict[str, Any]:
    """Return what one process tells."""
    times = [scale * each for each in (1.0, 9.0, 2.0)]
    sizes = ("weights_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "device_bytes")
    return {
        **dict.fromkeys(sizes, size),
        "first": {"calls": first},
        "repeated": {"calls": {"cuMemMap": repeated} if repeated else {}},
        "seconds": {"host": times, "device": times, "wall": times},
        "pictures": list(pictures),
    }


def test_processes_of_a_way_are_summed_up(peers: Any) -> None:
    calls = {"cuMemCreate": 3, "cuMemMap": 4}
    rounds = [process(calls, size=each, scale=each, repeated=each) for each in (4, 2, 3)]
    told = peers.summed(rounds, ["a"])
    assert told["peak_reserved_bytes"] == told["device_bytes"] == 3
    assert told["seconds"] == {key: [8.0, 4.0, 6.0] for key in ("host", "device", "wall")}
    assert (told["first_calls"], told["repeated_calls"]) == ([7, 7, 7], [4, 2, 3])
    assert told["has_same_pictures"]


@pytest.mark.parametrize("blind", [None, {}])
def test_a_counter_that_sees_nothing_at_first_tells_nothing_later(peers: Any, blind: Any) -> None:
    told = peers.summed([process({"cuMemMap": 1}), process(blind)], ["a"])
    assert told["repeated_calls"] == [None, None]
    assert peers.summed([process({"cuMemMap": 1})], ["a"])["repeated_calls"] == [0]


def test_a_process_that_failed_is_told(peers: Any) -> None:
    assert peers.summed([process(), {"failed": "why"}], ["a"]) == {"failed": "why"}


@pytest.mark.parametrize("pictures", [(("a",), ("b",)), (("a",), ("a", "b")), (("a", "b"),) * 2])
def test_a_picture_that_differs_is_told(peers: Any, pictures: tuple[tuple[str, ...], ...]) -> None:
    told = peers.summed([process(pictures=each) for each in pictures], list(pictures[0]))
    assert not told["has_same_pictures"]


def test_pictures_are_the_same_to_the_bit(peers: Any) -> None:
    torch = pytest.importorskip("torch")
    zero, negative, other = (torch.tensor([[1.0, each]]) for each in (0.0, -0.0, 0.0))
    assert peers.digest(zero) == peers.digest(other) != peers.digest(negative)


class Model:
    """Steps of two blocks and a decoder of one layer."""

    def step(self, at: Any) -> None:
        for place in ("block", "layer", "block", "layer", "decoder", "layer"):
            at(place)


def test_host_and_device_have_their_own_time(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pytest.importorskip("torch").cuda
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda _: 250.0)
    monkeypatch.setattr(cuda, "Event", lambda **_: event)
    monkeypatch.setattr(cuda, "synchronize", lambda: None)
    clock = iter((1.0, 1.5, 3.0))
    monkeypatch.setattr(peers.time, "perf_counter", lambda: next(clock))
    assert peers.timed(peers.Plain(), Model()) == {"host": 0.5, "device": 0.25, "wall": 2.0}


def test_what_pytorch_counts_is_of_the_step(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pytest.importorskip("torch").cuda
    stats = iter(((1, 2), (3, 7)))
    monkeypatch.setattr(
        cuda,
        "memory_stats",
        lambda: dict(zip(("num_device_alloc", "num_device_free"), next(stats), strict=True)),
    )
    monkeypatch.setattr(cuda, "synchronize", lambda: None)
    calls = importlib.import_module("gpu.calls")
    library = Cupti()
    monkeypatch.setattr(calls, "load", lambda: library)
    model = SimpleNamespace(step=lambda _: library.call(calls, "cuMemMap"))
    told = peers.counted(peers.Plain(), model)
    assert told == {"calls": {"cuMemMap": 1}, "why": "", "own_calls": 7}
    assert peers.calls_of(told) == 1


def test_the_most_in_use_counts_after_any_layer(
    peers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = iter((5, 7, 6, 9, 8, 4))
    monkeypatch.setattr(peers, "used_bytes", lambda: next(used))
    assert peers.most_used(peers.Plain(), Model()) == 9


def test_what_was_in_use_before_does_not_count(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    used = peers.used_bytes
    monkeypatch.setattr(peers, "used_bytes", lambda: used() + 5 * MIB)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    before = torch.get_default_dtype()
    try:
        told = peers.measure("default", "tiny", 1)
    finally:
        torch.set_default_dtype(before)
        peers.release()
    assert told["device_bytes"] == told["peak_reserved_bytes"]


class Graph:
    """A recorded step of comfy-aimdo, which breaks now and then."""

    peak_used, virtual_bytes, physical_bytes, rogue_count = 1, 2, 3 * MIB, 4

    def __init__(self, breaks: Iterator[bool]) -> None:
        self.breaks = breaks
        self.heard: list[str | None] = []

    def push(self) -> None:
        self.heard.append("push")

    def pop(self) -> bool:
        self.heard.append("pop")
        return next(self.breaks)

    def iterate(self, name: str | None = None) -> bool:
        self.heard.append(name)
        return next(self.breaks)


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Install comfy-aimdo, whose second and last answers are that a step broke."""
    made = Graph(iter([False, True, False, False, False, False, False, True]))
    control = ModuleType("comfy_aimdo.control")
    vars(control).update(
        init=lambda: True, init_device=lambda number: number == 0, record=lambda _: made
    )
    monkeypatch.setitem(sys.modules, "comfy_aimdo", ModuleType("comfy_aimdo"))
    monkeypatch.setitem(sys.modules, "comfy_aimdo.control", control)
    cuda = pytest.importorskip("torch").cuda
    monkeypatch.setattr(cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "current_stream", lambda: None)
    monkeypatch.setattr(cuda, "max_memory_reserved", lambda: MIB)
    return made


def test_the_compiler_hears_of_every_step_and_block(peers: Any, graph: Graph) -> None:
    way = peers.begin("aimdo")
    for _ in range(2):
        with way.step():
            Model().step(way.at)
    Model().step(way.at)  # outside of a step it hears nothing
    assert graph.heard == ["block", "block", None, "pop", "push", "block", "block", None, "pop"]
    assert way.told() == {
        "breaks": 2,
        "peak_used": 1,
        "virtual_bytes": 2,
        "physical_bytes": 3 * MIB,
        "rogue_count": 4,
    }
    assert way.reserved_bytes() == 4 * MIB


def test_the_compiler_may_see_a_step_as_one(peers: Any, graph: Graph) -> None:
    way = peers.begin("aimdo-whole")
    for _ in range(2):
        with way.step():
            Model().step(way.at)
    assert graph.heard == ["pop", "push", "pop"]


def test_a_compiler_that_does_not_start_is_told(
    peers: Any, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(graph, Graph)
    monkeypatch.setattr(sys.modules["comfy_aimdo.control"], "init_device", lambda _: False)
    with pytest.raises(SystemExit, match="could not catch calls"):
        peers.begin("aimdo")


@pytest.mark.parametrize("keeps", [True, False])
def test_a_saver_that_does_not_retain_is_told(
    sleeping: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    keeps: bool,
) -> None:
    torch = pytest.importorskip("torch")
    asked: list[int] = []

    def backup(of: Any) -> Any:
        asked.append(of.numel())
        return of if keeps else None

    saver = ModuleType("torch_memory_saver")
    vars(saver)["torch_memory_saver"] = SimpleNamespace(get_cpu_backup=backup)
    monkeypatch.setitem(sys.modules, "torch_memory_saver", saver)
    if keeps:
        sleeping.check_retained(torch.nn.Linear(5, 3))
    else:
        with pytest.raises(SystemExit, match="did not retain"):
            sleeping.check_retained(torch.nn.Linear(5, 3))
    assert asked == [3]
