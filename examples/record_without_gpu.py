#!/usr/bin/env python3
"""Record the memory trace of a real PyTorch training step on a machine without a GPU.

A GPT-style transformer is trained for a few steps under ``FakeTensorMode``: PyTorch dispatches
every operator of the forward pass, autograd and the optimizer, but tensors hold no data, so a model
of any size runs in seconds and in little memory. ``StorageRecorder`` watches the storages come and
go and writes down each birth and death in the order a GPU program would ask for and give back
memory.

    python examples/record_without_gpu.py --preset gpt2-medium --steps 3 -o medium.gmtrace
    gmlake replay medium.gmtrace

What the trace holds: every tensor that PyTorch's dispatcher creates on the device: parameters,
activations, what autograd saves, gradients, optimizer state, and temporaries between operators.
What it cannot hold: memory that a CUDA kernel takes for itself inside one operator (cuBLAS and
cuDNN workspaces, the float32 accumulator of flash attention's backward, sort buffers of the
embedding gradient), since no kernel runs. ``docs/tracing.md`` says more.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

# Its dispatcher hands over values of any type, and a storage's identity has private names only.
# ruff: noqa: ANN401, SLF001

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import random
import sys
import weakref
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

try:
    import torch
    from torch import Tensor, nn
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn import functional
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils.checkpoint import checkpoint
except ImportError as problem:
    sys.exit(f"record_without_gpu: {problem}; install any build with: pip install torch")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ALIGNMENT_BYTES = 512

# gml_request of csrc/include/gmlake.h
REQUEST = np.dtype(
    [
        ("id", "<u8"),
        ("size_bytes", "<u8"),
        ("address", "<u8"),
        ("time_ns", "<u8"),
        ("stream", "<u8"),
        ("kind", "<u4"),
        ("pool", "<u4"),
    ]
)
ALLOC, FREE, MARK = 1, 2, 8


# ---- recording ---------------------------------------------------------------------------------


class StorageRecorder(TorchDispatchMode):
    """Note the birth and death of every tensor storage on one device.

    Enter it inside a ``FakeTensorMode``, so that it sees each operator before the fake
    implementation does and gets its outputs. A storage is born with the first operator that
    returns a tensor on it (views and in-place operators return known storages) and dies when
    PyTorch frees it, which a weak reference reports at once: the order of events is the order of
    ``malloc`` and ``free`` calls of the program.

    Args:
        device_type: ``"cuda"`` or ``"cpu"``; storages elsewhere are not recorded.

    Example:
        >>> with FakeTensorMode(), StorageRecorder("cpu") as recorder:
        ...     step()
        ...     recorder.mark("step 1")
        >>> recorder.requests()["size_bytes"].sum()
    """

    def __init__(self, device_type: str) -> None:
        """Start with no events; recording begins when the object is entered."""
        super().__init__()
        self.live_bytes = 0
        self.peak_live_bytes = 0
        self.labels: list[str] = []
        self._device_type = device_type
        self._ids = array("Q")
        self._sizes = array("Q")
        self._kinds = array("B")
        self._next_id = 0
        self._is_recording = True
        # By the address of the C++ storage, which is unique while the storage lives.
        self._live: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self._on_host: dict[int, weakref.ref[Any]] = {}

    def mark(self, label: str) -> None:
        """Note a step boundary and what to call it."""
        self._append(len(self.labels), 0, MARK)
        self.labels.append(label)

    def stop(self) -> None:
        """End the recording: what is live now stays live in the trace."""
        self._is_recording = False

    def requests(self) -> npt.NDArray[np.void]:
        """Return the events so far: shape (events,), dtype `REQUEST`, in order of time."""
        rows = np.zeros(len(self._ids), REQUEST)
        rows["id"] = self._ids
        rows["size_bytes"] = self._sizes
        rows["kind"] = self._kinds
        return rows

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator and look at the tensors that it returns."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return _any_value(args[0])
        if func is torch.ops.aten.add.Tensor and not kwargs and _is_gradient_sum(*args):
            # Autograd adds in place, but for tensor subclasses, as fakes are, out of place
            # (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace).
            func = torch.ops.aten.add_.Tensor
        result = func(*args, **(kwargs or {}))
        # torch.tensor() makes its tensor from Python data in host memory; with a GPU the copy to
        # the device is another operator. Where the CPU stands in for the GPU only this tells.
        is_host_data = func is torch.ops.aten.lift_fresh.default and self._device_type == "cpu"
        for tensor in _tensors(result):
            if tensor.device.type == self._device_type:
                self._see(tensor, is_host_data=is_host_data)
        return result

    def _see(self, tensor: Tensor, *, is_host_data: bool) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._on_host:
            return
        if is_host_data and key not in self._live:
            self._on_host[key] = weakref.ref(storage, lambda _: self._on_host.pop(key, None))
            return
        size_bytes = storage.nbytes()
        known = self._live.get(key)
        if known is not None:
            if known[2] == size_bytes:
                return
            self._die(key)  # resized in place: the old memory goes, new memory comes
        if size_bytes > 0 and self._is_recording:
            self._append(self._next_id, size_bytes, ALLOC)
            death = weakref.ref(storage, lambda _: self._die(key))
            self._live[key] = (death, self._next_id, size_bytes)
            self._next_id += 1

    def _die(self, key: int) -> None:
        _, number, size_bytes = self._live.pop(key)
        if self._is_recording:
            self._append(number, size_bytes, FREE)

    def _append(self, number: int, size_bytes: int, kind: int) -> None:
        self._ids.append(number)
        self._sizes.append(size_bytes)
        self._kinds.append(kind)
        rounded = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.live_bytes += rounded if kind == ALLOC else -rounded
        self.peak_live_bytes = max(self.peak_live_bytes, self.live_bytes)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _is_gradient_sum(first: Any, second: Any) -> bool:
    """Tell whether ``first + second`` is autograd's sum of two gradients, the first its own.

    Inside the engine and without grad mode (recomputed forward passes have it), no formula of the
    operators used here calls ``add`` itself. The first gradient must be alone on its storage.
    """
    if torch._C._current_graph_task_id() == -1 or torch.is_grad_enabled():
        return False
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return False
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    storage = first.untyped_storage()
    held_by = torch._C._storage_Use_Count(storage._cdata)
    return bool(first.is_contiguous()) and held_by == _uses_of_a_lone_storage()


@functools.cache
def _uses_of_a_lone_storage() -> int:
    """Count what holds a storage of one tensor and one Python object; versions differ."""
    with _disable_current_modes():
        tensor = torch.empty(1)
        storage = tensor.untyped_storage()
        return int(torch._C._storage_Use_Count(storage._cdata))


def _any_value(tensor: Tensor) -> bool | int | float:
    """Answer ``tensor.item()``: fakes hold no data, and no size depends on the value."""
    if tensor.dtype is torch.bool:
        return True
    return 1.0 if tensor.dtype.is_floating_point else 1


# ---- the program that is recorded --------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """Sizes of a GPT-style transformer; ``width`` is a multiple of ``heads``."""

    layers: int
    width: int
    heads: int
    context: int
    vocab: int

    def parameter_count(self) -> int:
        """Return how many parameters it has; the head shares the token embedding's weight."""
        block = 12 * self.width**2 + 13 * self.width
        embeddings = (self.vocab + self.context) * self.width
        return embeddings + self.layers * block + 2 * self.width


# GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2;
# 1.3b: GPT-Neo 1.3B (Black et al., 2021), its layers, width, heads and context.
PRESETS = {
    "tiny": (Model(layers=2, width=64, heads=4, context=64, vocab=512), 2),
    "gpt2-small": (Model(layers=12, width=768, heads=12, context=1024, vocab=50257), 8),
    "gpt2-medium": (Model(layers=24, width=1024, heads=16, context=1024, vocab=50257), 8),
    "gpt2-xl": (Model(layers=48, width=1600, heads=25, context=1024, vocab=50257), 4),
    "1.3b": (Model(layers=24, width=2048, heads=16, context=2048, vocab=50257), 4),
}


@dataclass(frozen=True)
class Training:
    """How the model is trained while it is recorded."""

    steps: int = 3
    batch: int = 8
    has_checkpoints: bool = False
    dtype: str = "float32"
    optimizer: str = "adamw"
    varies_context: bool = False
    grad_accumulation: int = 1
    zero_grad: str = "end"
    seed: int = 0

    def contexts(self, longest: int) -> list[int]:
        """Return the sequence length of each step, in tokens."""
        if not self.varies_context:
            return [longest] * self.steps
        lengths = random.Random(self.seed)  # noqa: S311 - no secret, only repeatable
        return [lengths.randint(max(1, longest // 4), longest) for _ in range(self.steps)]


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, model: Model, factory: dict[str, Any]) -> None:
        """Make the projections; `factory` holds their device and dtype."""
        super().__init__()
        self.heads = model.heads
        self.project_in = nn.Linear(model.width, 3 * model.width, **factory)
        self.project_out = nn.Linear(model.width, model.width, **factory)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, context, width] to the same shape."""
        batch, context, width = x.shape
        shape = (batch, context, self.heads, width // self.heads)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.project_in(x).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.project_out(mixed.transpose(1, 2).reshape(batch, context, width))
        return out


class Block(nn.Module):
    """One pre-LN transformer block."""

    def __init__(self, model: Model, factory: dict[str, Any]) -> None:
        """Make both branches; `factory` holds their device and dtype."""
        super().__init__()
        self.norm_attention = nn.LayerNorm(model.width, **factory)
        self.attention = Attention(model, factory)
        self.norm_mlp = nn.LayerNorm(model.width, **factory)
        self.widen = nn.Linear(model.width, 4 * model.width, **factory)
        self.narrow = nn.Linear(4 * model.width, model.width, **factory)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, context, width] to the same shape."""
        x = x + self.attention(self.norm_attention(x))
        out: Tensor = x + self.narrow(functional.gelu(self.widen(self.norm_mlp(x))))
        return out


class GPT(nn.Module):
    """A GPT-style language model whose head shares the token embedding's weight."""

    def __init__(self, model: Model, factory: dict[str, Any], *, has_checkpoints: bool) -> None:
        """Make the blocks; with checkpoints, each is recomputed in the backward pass."""
        super().__init__()
        self.has_checkpoints = has_checkpoints
        self.tokens = nn.Embedding(model.vocab, model.width, **factory)
        self.positions = nn.Embedding(model.context, model.width, **factory)
        self.blocks = nn.ModuleList(Block(model, factory) for _ in range(model.layers))
        self.norm = nn.LayerNorm(model.width, **factory)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Map tokens and targets, [batch, context] each, to the mean loss, a scalar."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            if self.has_checkpoints:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    # PyTorch picks foreach by itself for tensors on a GPU; it is said aloud for the CPU fakes.
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True),
    "adamw-loop": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, foreach=True),
}


def record(model: Model, training: Training, device: str) -> StorageRecorder:
    """Build and train the model on fake tensors; the recording starts with its parameters.

    A mark is noted before the first step and after every step.

    Args:
        model: Sizes of the model.
        training: How it is trained.
        device: ``"cuda"`` or ``"cpu"``, as `fake_device` found.
    """
    recorder = StorageRecorder(device)
    # The collector would free cycles at moments that differ from run to run.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        with FakeTensorMode(), recorder:
            train(model, training, device, recorder)
    finally:
        if was_collecting:
            gc.enable()
    return recorder


def train(model: Model, training: Training, device: str, recorder: StorageRecorder) -> None:
    """Build and train the model with whatever modes are on; mark the recorder between steps."""
    dtype = torch.bfloat16 if training.dtype == "bfloat16" else torch.float32
    factory = {"device": device, "dtype": dtype}
    network = GPT(model, factory, has_checkpoints=training.has_checkpoints)
    optimizer = OPTIMIZERS[training.optimizer](network.parameters())
    recorder.mark("model built")
    for number, context in enumerate(training.contexts(model.context), start=1):
        if training.zero_grad == "start":
            optimizer.zero_grad()
        for _ in range(training.grad_accumulation):
            _forward_backward(network, model, training, context, device)
        optimizer.step()
        if training.zero_grad == "end":
            optimizer.zero_grad()
        recorder.mark(f"step {number}, context {context}")
    recorder.stop()


def _forward_backward(
    network: GPT, model: Model, training: Training, context: int, device: str
) -> None:
    shape = (training.batch, context)
    tokens = torch.randint(model.vocab, shape, device=device)
    targets = torch.randint(model.vocab, shape, device=device)
    precision: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if training.dtype == "mixed":
        precision = torch.autocast(device, torch.bfloat16)
    with precision:
        loss = network(tokens, targets)
    (loss / training.grad_accumulation).backward()


def fake_device() -> str:
    """Return ``"cuda"`` where this PyTorch can run fake CUDA tensors, else ``"cpu"``.

    That takes a build with CUDA and a GPU, though the GPU does nothing. Builds without CUDA abort
    the process in autograd rather than raise, so they are not tried.
    """
    if not torch.backends.cuda.is_built():
        return "cpu"
    try:
        with FakeTensorMode():
            layer = nn.Linear(64, 64, device="cuda")
            x = layer(torch.empty(1, 1, 64, 64, device="cuda"))
            functional.scaled_dot_product_attention(x, x, x).sum().backward()
    except (RuntimeError, AssertionError):
        return "cpu"
    return "cuda"


# ---- the command -------------------------------------------------------------------------------


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Record the memory trace of a GPT training step without a GPU.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    size = parser.add_argument_group("model (each overrides the preset)")
    size.add_argument("--preset", choices=PRESETS, default="gpt2-small", help="model sizes")
    for name, what in (
        ("layers", "transformer blocks"),
        ("width", "features per token"),
        ("heads", "attention heads; divides the width"),
        ("context", "tokens per sequence"),
        ("vocab", "tokens in the vocabulary"),
    ):
        size.add_argument(f"--{name}", type=_positive, default=argparse.SUPPRESS, help=what)
    run = parser.add_argument_group("training")
    run.add_argument(
        "--batch", type=_positive, default=argparse.SUPPRESS, help="sequences per micro-batch"
    )
    run.add_argument("--steps", type=_positive, default=3, help="optimizer steps")
    run.add_argument(
        "--checkpoint",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="recompute each block's activations in the backward pass",
    )
    run.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "mixed"),
        default="float32",
        help="of parameters and activations; mixed: float32 parameters under bfloat16 autocast",
    )
    run.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help="update rule")
    run.add_argument(
        "--vary-context",
        action="store_true",
        help="another sequence length in each step, from a quarter of the context up",
    )
    run.add_argument("--seed", type=int, default=0, help="of --vary-context")
    run.add_argument(
        "--grad-accumulation", type=_positive, default=1, help="micro-batches per step"
    )
    run.add_argument(
        "--zero-grad",
        choices=("start", "end"),
        default="end",
        help="whether gradients are dropped at the start or at the end of a step",
    )
    run.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="where the fake tensors claim to be; auto: cuda if this PyTorch can, else cpu",
    )
    parser.add_argument("-o", "--output", type=Path, help="trace to write, such as step.gmtrace")
    return parser


def _options(arguments: Sequence[str] | None) -> tuple[Model, Training, str, Path | None]:
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    model, batch = PRESETS[given["preset"]]
    sizes = {name: given[name] for name in vars(model) if name in given}
    model = replace(model, **sizes)
    if model.width % model.heads:
        parser.error(f"--width {model.width} is not a multiple of --heads {model.heads}")
    training = Training(
        steps=given["steps"],
        batch=given.get("batch", batch),
        has_checkpoints=given["checkpoint"],
        dtype=given["dtype"],
        optimizer=given["optimizer"],
        varies_context=given["vary_context"],
        grad_accumulation=given["grad_accumulation"],
        zero_grad=given["zero_grad"],
        seed=given["seed"],
    )
    device = fake_device() if given["device"] == "auto" else given["device"]
    if device == "cuda" and not torch.backends.cuda.is_built():
        parser.error("--device cuda: this PyTorch was built without CUDA; use --device auto")
    output: Path | None = given["output"]
    if output is not None and not output.parent.is_dir():
        parser.error(f"--output {output}: there is no folder {output.parent}")
    return model, training, device, output


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    model, training, device, output = _options(arguments)
    recorder = record(model, training, device)
    requests = recorder.requests()
    births = int((requests["kind"] == ALLOC).sum())
    print(
        f"{model.parameter_count() / 1e6:.1f} M parameters, fake device {device}: "
        f"{len(requests)} events, {births} allocations, "
        f"peak live {recorder.peak_live_bytes / 2**30:.3f} GiB"
    )
    if output is not None:
        return _save(requests, recorder.labels, output)
    return 0


def _save(requests: npt.NDArray[np.void], labels: Sequence[str], output: Path) -> int:
    try:
        import gmlake
    except ImportError as problem:
        print(f"record_without_gpu: {problem}; install it with: pip install .", file=sys.stderr)
        return 1
    try:
        gmlake.Snapshot.of_events(requests, labels=tuple(labels)).save(output)
        written_bytes = output.stat().st_size
    except OSError as problem:
        print(f"record_without_gpu: {output}: {problem.strerror}", file=sys.stderr)
        return 1
    print(f"{output}: {written_bytes} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
