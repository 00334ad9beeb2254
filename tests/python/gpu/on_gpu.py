"""What PyTorch does on a GPU under one allocator; test_gpu.py compares the answers.

    python on_gpu.py default|gmlake

Prints a JSON object with the answer of each scenario. An allocator is chosen once in a process, so
that each has a process of its own, which runs all of them.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any
# mypy: disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import json
import sys
import time
import traceback
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

Answer = dict[str, Any]

MIB = 1 << 20
GIB = 1 << 30
SPIN_CYCLES = 400_000_000  # about 0.2 s


def exact(tensor: Tensor) -> str:
    """Return a number that differs where any bit of a tensor does, as text."""
    words = tensor.detach().contiguous().view(torch.int32).flatten().to(torch.int64)
    places = torch.arange(1, words.numel() + 1, device=words.device)
    return str(int((words * places).sum()))


# ---- training ------------------------------------------------------------------------------------


class Model(nn.Module):
    """Checkpointed layers of attention and feed-forward parts, over tokens of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, 512)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
            for _ in range(4)
        )
        self.out = nn.Linear(512, 1000)

    def loss(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens[:, :-1])
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return functional.cross_entropy(self.out(x).flatten(0, 1), tokens[:, 1:].flatten())


def steps(lengths: tuple[int, ...]) -> tuple[list[str], Model]:
    """Train; return the loss of each step, and the model."""
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    losses = []
    for length in lengths:
        loss = model.loss(torch.randint(1000, (16, length + 1), device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss).hex())
    return losses, model


def training() -> Answer:
    """Train on sequences of varying length; compare losses and weights bit for bit."""
    losses, model = steps((200, 512, 96, 344, 504, 128, 512, 72, 448, 320))
    return {"losses": losses, "weights": [exact(weight) for weight in model.parameters()]}


def out_of_memory() -> Answer:
    """Take all there is, be refused, let go, and train."""
    held: list[Tensor] = []
    message = ""
    try:
        while len(held) < 1000:
            held.append(torch.empty(4 * GIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as refusal:
        message = str(refusal)
    taken_bytes = len(held) * 4 * GIB
    _, total_bytes = torch.cuda.mem_get_info()
    del held
    losses, _ = steps((128, 256))
    return {"message": message, "share_taken": taken_bytes / total_bytes, "losses": losses}


# ---- stitching -----------------------------------------------------------------------------------


def scattered() -> list[Tensor]:
    """Leave free memory in pieces of 24 MiB, and return what lies between them."""
    blocks = [torch.empty(24 * MIB, dtype=torch.uint8, device="cuda") for _ in range(64)]
    return blocks[::2]


def stitched() -> Answer:
    """Compute with a tensor that is larger than every piece of free memory."""
    torch.cuda.empty_cache()
    between = scattered()
    torch.manual_seed(2)
    side = 5000  # 100 MB: four pieces and more
    reserved_bytes = torch.cuda.memory_reserved()
    wide = torch.randn(side, side, device="cuda").requires_grad_()
    grown_bytes = torch.cuda.memory_reserved() - reserved_bytes
    for block in between:  # whose neighbours must not notice
        block.fill_(255)
    weight = torch.randn(side, 64, device="cuda")
    loss = functional.silu(wide @ weight).square().mean()
    loss.backward()
    gradient = wide.grad
    assert gradient is not None
    return {
        "loss": float(loss).hex(),
        "values": exact(wide),
        "gradient": exact(gradient),
        "grown_bytes": grown_bytes,
        "tensor_bytes": wide.nbytes,
        "neighbours": all(bool((block == 255).all()) for block in between),
    }


# ---- streams and graphs --------------------------------------------------------------------------


def streams() -> Answer:
    """Let another stream read late what this one has freed, and take the memory again."""
    side = torch.cuda.Stream()
    results = []
    for size in (1000, 300_000, 5_000_000):
        source = torch.full((size,), 7.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN_CYCLES)  # noqa: SLF001 (PyTorch has no public way to spin)
            copy = source * 2
        source.record_stream(side)
        del source
        others = [torch.full((size,), -1.0, device="cuda") for _ in range(8)]
        torch.cuda.synchronize()
        results.append(bool((copy == 14.0).all()))
        del others, copy
    return {"unharmed": results}


def graphs() -> Answer:
    """Capture a training step, take memory beside it, and replay."""
    torch.manual_seed(3)
    with torch.device("cuda"):
        layer = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
        static = torch.randn(256, 512)
    inputs = [torch.randn(256, 512, device="cuda") for _ in range(3)]
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            layer(static).square().mean().backward()
    torch.cuda.current_stream().wait_stream(warm)
    layer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = layer(static).square().mean()
        loss.backward()
    replayed, beside_is_unharmed = [], True
    for given in inputs:
        beside = [torch.full((256, 2048), 9.0, device="cuda") for _ in range(16)]
        static.copy_(given)
        graph.replay()
        replayed.append(float(loss).hex())
        beside_is_unharmed &= all(bool((tensor == 9.0).all()) for tensor in beside)
        del beside
    eager = [float(layer(given).square().mean()).hex() for given in inputs]
    del graph, loss
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return {"replayed": replayed, "eager": eager, "unharmed": beside_is_unharmed}


# ---- what PyTorch tells --------------------------------------------------------------------------


def trimming() -> Answer:
    """Give memory back to the device."""
    torch.cuda.empty_cache()
    free_before_bytes, _ = torch.cuda.mem_get_info()
    big = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    free_with_bytes, _ = torch.cuda.mem_get_info()
    allocated_bytes = torch.cuda.memory_allocated()
    del big
    freed_bytes = allocated_bytes - torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    free_after_bytes, _ = torch.cuda.mem_get_info()
    return {
        "taken_bytes": free_before_bytes - free_with_bytes,
        "freed_bytes": freed_bytes,
        "missing_bytes": free_before_bytes - free_after_bytes,
    }


def statistics() -> Answer:
    """Ask for what PyTorch's tools ask for."""
    torch.cuda.reset_peak_memory_stats()
    before_bytes = torch.cuda.memory_allocated()
    held = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
    told = {
        "allocated_bytes": torch.cuda.memory_allocated() - before_bytes,
        "peak_bytes": torch.cuda.max_memory_allocated() - before_bytes,
        "has_reserved": torch.cuda.memory_reserved() >= torch.cuda.memory_allocated(),
        "has_summary": "Allocated memory" in torch.cuda.memory_summary(),
        "segments": sum(segment["total_size"] for segment in torch.cuda.memory_snapshot()) > 0,
    }
    del held
    return told


def convolutions() -> Answer:
    """Let cuDNN try its algorithms, whose work areas come from the allocator."""
    torch.manual_seed(4)
    with torch.device("cuda"):
        layer = nn.Conv2d(32, 64, 3, padding=1)
        picture = torch.randn(8, 32, 96, 96)
    expected = layer(picture)
    torch.backends.cudnn.benchmark = True
    try:
        seen = layer(picture)
        seen.sum().backward()
    finally:
        torch.backends.cudnn.benchmark = False
    return {"close": bool(torch.allclose(seen, expected, rtol=1e-2, atol=1e-2))}


def peers() -> Answer:
    """Copy between two devices, and back; nothing where there is one only."""
    if torch.cuda.device_count() < 2:
        return {"devices": torch.cuda.device_count()}
    here = torch.arange(30_000_000, device="cuda:0")
    there = here.to("cuda:1")
    back = (there + 1).to("cuda:0")
    return {"devices": torch.cuda.device_count(), "same": bool((back == here + 1).all())}


SCENARIOS: dict[str, Callable[[], Answer]] = {
    "training": training,
    "stitched": stitched,
    "streams": streams,
    "graphs": graphs,
    "trimming": trimming,
    "statistics": statistics,
    "convolutions": convolutions,
    "peers": peers,
    "out_of_memory": out_of_memory,
}


def region(way: str) -> AbstractContextManager[Any]:
    """Return what everything happens in."""
    if way == "default":
        return nullcontext()
    import gmlake

    torch.cuda.init()  # it may be in use already
    entered: AbstractContextManager[Any] = gmlake.enabled(policy="stitch")
    return entered


def main() -> None:
    """Run every scenario; one that raises does not end the others."""
    way = sys.argv[1]
    torch.use_deterministic_algorithms(True)  # noqa: FBT003 (its own signature)
    torch.utils.deterministic.fill_uninitialized_memory = False
    answers: dict[str, Answer] = {}
    with region(way) as lake:
        for name, scenario in SCENARIOS.items():
            states = lake.stats().get("states", {}) if lake is not None else {}
            began = time.perf_counter()
            try:
                answers[name] = scenario()
            except Exception:  # noqa: BLE001 - it is told
                answers[name] = {"raised": traceback.format_exc()}
            answers[name]["seconds"] = round(time.perf_counter() - began, 2)
            if lake is not None:
                after = lake.stats().get("states", {})
                answers[name]["states"] = {
                    state: count - states.get(state, 0) for state, count in after.items()
                }
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
