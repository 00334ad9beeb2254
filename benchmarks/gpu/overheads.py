r"""What the driver and NVIDIA's libraries take of the device beyond what PyTorch reserves.

    PYTHONPATH=benchmarks python -m gpu.overheads [--only context conv_bf16] [--write]

Each feature of PyTorch is used twice in a forked child of its own, which has a context already, and
once more in a child that uses one feature after the other. Two GPUs are used together through NCCL
where they are there. On the stand-in everything adds nothing.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls
# mypy: disable-error-code="import-not-found, attr-defined, unused-ignore"

# Some of what a library does has a private name only.
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine
from gpu import forked

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

Answer = dict[str, Any]

MIB = 1 << 20
_LONGEST_SECONDS = 120.0
_WIDTH = 4096


# ---- features, in a process that has a context ---------------------------------------------------


def tensor() -> None:
    """Take a tensor without launching a kernel."""
    import torch

    torch.empty(1, device="cuda")


def elementwise() -> None:
    """Launch PyTorch's simplest kernels."""
    import torch

    torch.ones(1 << 20, device="cuda").add_(1)


def random_numbers() -> None:
    """Draw numbers on the device."""
    import torch

    torch.randn(1 << 20, device="cuda")
    torch.randint(100, (1 << 20,), device="cuda")


def reductions() -> None:
    """Add up, normalize, sort and look up."""
    import torch
    from torch.nn import functional

    given = torch.randn(1024, 4096, device="cuda", requires_grad=True)
    functional.layer_norm(given, (4096,)).softmax(dim=1).sum().backward()
    given.detach().sort(dim=1)
    table = torch.randn(1024, 64, device="cuda", requires_grad=True)
    places = torch.randint(1024, (4096,), device="cuda")
    functional.cross_entropy(functional.embedding(places, table), places % 64).backward()


def _product(dtype: str, *, has_tf32: bool = False) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = has_tf32
    shape = (_WIDTH, _WIDTH)
    kind = getattr(torch, dtype)
    given = torch.randn(shape, device="cuda").to(kind).requires_grad_()
    weights = torch.randn(shape, device="cuda").to(kind).requires_grad_()
    (given @ weights).sum().backward()
    small = torch.randn(16, 128, 64, device="cuda").to(kind)
    torch.bmm(small, small.transpose(1, 2))


def matmul_fp32() -> None:
    """Multiply in float32, without TF32."""
    _product("float32")


def matmul_tf32() -> None:
    """Multiply in float32, with TF32."""
    _product("float32", has_tf32=True)


def matmul_bf16() -> None:
    """Multiply in bfloat16."""
    _product("bfloat16")


def matmul_fp16() -> None:
    """Multiply in float16."""
    _product("float16")


def cublaslt_gelu() -> None:
    """Multiply, add a bias and apply GELU in one call of cuBLASLt."""
    import torch

    given = torch.randn(_WIDTH, _WIDTH, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(_WIDTH, device="cuda", dtype=torch.bfloat16)
    torch._addmm_activation(bias, given, given, use_gelu=True)
    torch.addmm(bias, given, given)


def cublaslt_fp8() -> None:
    """Multiply in float8 with scales."""
    import torch

    given = torch.randn(1024, 1024, device="cuda").to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    torch._scaled_mm(given, given.t(), one, one, out_dtype=torch.bfloat16)


def grouped_mm() -> None:
    """Multiply groups of rows, each with a matrix of its own."""
    import torch

    given = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weights = torch.randn(4, 1024, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    ends = torch.arange(256, 1025, 256, device="cuda", dtype=torch.int32)
    torch._grouped_mm(given, weights, offs=ends).square().mean().backward()


def _convolve(dtype: str, layout: str, *, has_search: bool = False, groups: int = 1) -> None:
    import torch
    from torch import nn

    torch.backends.cudnn.benchmark = has_search
    kind, order = getattr(torch, dtype), getattr(torch, layout)
    net = nn.Sequential(
        nn.Conv2d(64, 128, 3, padding=1, groups=groups), nn.BatchNorm2d(128), nn.Conv2d(128, 64, 1)
    )
    net = net.to("cuda", kind, memory_format=order)  # type: ignore[call-overload]
    pictures = torch.randn(32, 64, 56, 56, device="cuda", dtype=kind)
    net(pictures.to(memory_format=order)).sum().backward()


def conv_fp32() -> None:
    """Convolve in float32 (TF32, as PyTorch's default is)."""
    _convolve("float32", "contiguous_format")


def conv_bf16() -> None:
    """Convolve in bfloat16."""
    _convolve("bfloat16", "contiguous_format")


def conv_fp16() -> None:
    """Convolve in float16."""
    _convolve("float16", "contiguous_format")


def conv_bf16_channels_last() -> None:
    """Convolve in bfloat16, channels last."""
    _convolve("bfloat16", "channels_last")


def conv_depthwise() -> None:
    """Convolve each channel by itself."""
    _convolve("float32", "contiguous_format", groups=64)


def conv_benchmark() -> None:
    """Convolve with the fastest of cuDNN's algorithms, which is searched for."""
    _convolve("float32", "contiguous_format", has_search=True)


def _attend(backend: str, dtype: str = "bfloat16") -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    query, key, value = (
        torch.randn(4, 16, 1024, 64, device="cuda", dtype=getattr(torch, dtype)).requires_grad_()
        for _ in range(3)
    )
    with sdpa_kernel(getattr(SDPBackend, backend)):
        scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()


def sdpa_flash() -> None:
    """Attend with FlashAttention's kernels."""
    _attend("FLASH_ATTENTION")


def sdpa_efficient() -> None:
    """Attend with the kernels of xFormers, in float32."""
    _attend("EFFICIENT_ATTENTION", "float32")


def sdpa_cudnn() -> None:
    """Attend with cuDNN."""
    _attend("CUDNN_ATTENTION")


def sdpa_math() -> None:
    """Attend with products and a softmax."""
    _attend("MATH")


def _optimize(*, is_fused: bool) -> None:
    import torch

    parts = [torch.randn(1 << 20, device="cuda").requires_grad_() for _ in range(8)]
    optimizer = torch.optim.AdamW(parts, foreach=not is_fused, fused=is_fused)
    for part in parts:
        part.grad = torch.ones_like(part)
    torch.nn.utils.clip_grad_norm_(parts, 1.0)
    optimizer.step()


def adamw_foreach() -> None:
    """Take a step of AdamW as PyTorch does by default."""
    _optimize(is_fused=False)


def adamw_fused() -> None:
    """Take a step of the fused AdamW."""
    _optimize(is_fused=True)


def compiled() -> None:
    """Run a function that torch.compile made, forward and backward."""
    import torch
    from torch.nn import functional

    def work(given: Tensor) -> Tensor:
        return functional.gelu(given).softmax(dim=1)

    given = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    torch.compile(work)(given).sum().backward()


def graph() -> None:
    """Capture kernels in a graph, and replay it."""
    import torch

    given = torch.randn(1024, 1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        given @ given  # a capture must not be the first to ask for a workspace
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(100):
            given = (given @ given).add_(1)
    captured.replay()
    torch.cuda.synchronize()


def streams() -> None:
    """Use eight streams and events."""
    import torch

    for _ in range(8):
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.ones(1 << 20, device="cuda").add_(1)
            torch.cuda.Event().record()


def pinned_copies() -> None:
    """Copy to the device and back through pinned memory."""
    import torch

    host = torch.ones(1 << 24).pin_memory()
    host.copy_(host.to("cuda", non_blocking=True), non_blocking=True)


def cufft() -> None:
    """Transform with cuFFT."""
    import torch

    torch.fft.ifft2(torch.fft.fft2(torch.randn(64, 256, 256, device="cuda")))


def cusolver() -> None:
    """Factorize with cuSOLVER."""
    import torch

    given = torch.randn(512, 512, device="cuda")
    torch.linalg.cholesky_ex(given @ given.T + 512 * torch.eye(512, device="cuda"))
    torch.linalg.qr(given)
    torch.linalg.lu_factor_ex(given)


def cusparse() -> None:
    """Multiply by a sparse matrix with cuSPARSE."""
    import torch

    rows = torch.arange(1025, device="cuda")
    columns = torch.arange(1024, device="cuda")
    values = torch.ones(1024, device="cuda")
    sparse = torch.sparse_csr_tensor(rows, columns, values, (1024, 1024), check_invariants=False)
    sparse @ torch.randn(1024, 64, device="cuda")


def nccl_one_rank() -> None:
    """Add up over a group of one process."""
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        folder = tempfile.mkdtemp(prefix="gmlake-overheads-")
        distributed.init_process_group(
            "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
    distributed.all_reduce(torch.ones(1 << 24, device="cuda"))


FEATURES: dict[str, Callable[[], None]] = {
    work.__name__: work
    for work in (
        *(tensor, elementwise, random_numbers, reductions, pinned_copies, streams),
        *(matmul_fp32, matmul_tf32, matmul_bf16, matmul_fp16),
        *(cublaslt_gelu, cublaslt_fp8, grouped_mm),
        *(conv_fp32, conv_bf16, conv_fp16, conv_bf16_channels_last, conv_depthwise, conv_benchmark),
        *(sdpa_math, sdpa_flash, sdpa_efficient, sdpa_cudnn, adamw_foreach, adamw_fused),
        *(graph, compiled, cufft, cusolver, cusparse, nccl_one_rank),
    )
}
"""In the order in which one child uses them all."""


# ---- what they add -------------------------------------------------------------------------------


def beyond(free_before: int | None) -> int:
    """Return the bytes of the device that are in use and not reserved by PyTorch.

    free_before: bytes that were free before this process began; where nobody could say, what other
    processes use is counted too.
    """
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return (total if free_before is None else free_before) - free - torch.cuda.memory_reserved()


def _begin() -> None:
    """Make the context; PyTorch makes one when it has something to do in it."""
    import torch

    warnings.simplefilter("ignore")  # advice about speed
    torch.cuda.init()
    torch.cuda.synchronize()


def context(free_before: int | None) -> Answer:
    """Return what a context takes."""
    _begin()
    return {"alone_bytes": beyond(free_before)}


def alone(name: str, free_before: int | None) -> Answer:
    """Use a feature twice; return what each time added beyond a context and what is reserved."""
    import torch

    _begin()
    before = beyond(free_before)
    FEATURES[name]()
    first = beyond(free_before)
    reserved = torch.cuda.max_memory_reserved()
    FEATURES[name]()
    return {
        "alone_bytes": beyond(free_before) - before,
        "first_use_bytes": first - before,
        "reserved_bytes": reserved,
    }


def together(names: list[str], free_before: int | None) -> Answer:
    """Use features one after the other; return what each added, and all of them."""
    _begin()
    begin = before = beyond(free_before)
    added = {}
    for name in names:
        FEATURES[name]()
        now = beyond(free_before)
        added[name] = now - before
        before = now
    return {"added": added, "all_bytes": before - begin}


def _collectives(rank: int, folder: Path, free_before: int | None) -> dict[str, int]:
    """Talk to the other rank in every way; return what is taken of this device after each."""
    import torch
    from torch import distributed

    torch.cuda.set_device(rank)
    _begin()
    told = {"context": beyond(free_before)}
    distributed.init_process_group(
        "nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    told["init_process_group"] = beyond(free_before)
    given = torch.ones(1 << 24, device="cuda")
    whole = torch.empty(1 << 25, device="cuda")
    told["tensors"] = beyond(free_before)
    for name, work in {
        "broadcast": lambda: distributed.broadcast(given, 0),
        "all_reduce": lambda: distributed.all_reduce(given),
        "all_gather": lambda: distributed.all_gather_into_tensor(whole, given),
        "reduce_scatter": lambda: distributed.reduce_scatter_tensor(given, whole),
        "send_recv": lambda: (distributed.recv if rank else distributed.send)(given, 1 - rank),
        "barrier": distributed.barrier,
    }.items():
        work()
        told[name] = beyond(free_before)
    distributed.barrier()  # a rank that ended early would end the other
    torch.cuda.synchronize()
    return told


def two_ranks(free_before: list[int | None]) -> Answer:
    """Let this child be rank 0 and a child of it rank 1; return what each took, by moment."""
    with tempfile.TemporaryDirectory(prefix="gmlake-overheads-") as folder:
        place, other = Path(folder), Path(folder) / "told"
        child = os.fork()
        if child == 0:
            try:
                told = _collectives(1, place, free_before[1])
                other.write_text(json.dumps(told), encoding="utf-8")
            finally:
                os._exit(0)
        mine = _collectives(0, place, free_before[0])
        os.waitpid(child, 0)
        return {"in_use_beyond_reserved_bytes": [mine, json.loads(other.read_text())]}


# ---- the whole -----------------------------------------------------------------------------------


def import_everything() -> None:
    """Import what children need, without initialising CUDA."""
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch.distributed

    if torch.cuda.is_initialized():
        raise SystemExit("an import initialised CUDA, so no child can use it")


def measure(names: list[str], watches: list[forked.Watch], device: Answer) -> Answer:
    """Return what each feature adds, alone and after the others."""
    watch = watches[0]
    told = {"context": forked.in_child(partial(context, watch.settled_bytes()), _LONGEST_SECONDS)}
    for name in names:
        work = partial(alone, name, watch.settled_bytes())
        told[name] = forked.in_child(work, _LONGEST_SECONDS)
        print(line(name, told[name]), flush=True)
    usable = [name for name in names if "failed" not in told[name]]  # a crash would end them all
    work = partial(together, usable, watch.settled_bytes())
    joined = forked.in_child(work, _LONGEST_SECONDS)
    for name, added in joined.pop("added", {}).items():
        told[name]["after_others_bytes"] = added
    figures = {
        "versions": forked.versions(),
        "device": device,
        "is_exact": watch.free_bytes() is not None,
        "features": told,
        "together": joined,
    }
    if device["devices"] > 1:
        free = [each.settled_bytes() for each in watches]
        figures["two_ranks"] = forked.in_child(partial(two_ranks, free), _LONGEST_SECONDS)
    return figures


def line(name: str, told: Answer) -> str:
    """Return a row of text: what a feature added alone, in MiB, or why not."""
    if "failed" in told:
        return f"{name:24} {told['failed']}"
    return f"{name:24} {told['alone_bytes'] / MIB:9.2f} MiB {told['seconds']:6.1f} s"


def show(figures: Answer) -> None:
    """Print one row for each feature, in MiB."""
    title = f"MiB beyond what PyTorch reserved, on {figures['device']['device']}"
    table = Table("feature", "alone", "first use", "after the others", "", title=title)
    keys = ("alone_bytes", "first_use_bytes", "after_others_bytes")
    for name, told in figures["features"].items():
        cells = [f"{told[key] / MIB:.2f}" if key in told else "-" for key in keys]
        table.add_row(name, *cells, told.get("failed", "")[:60])
    together_bytes = figures["together"].get("all_bytes")
    if together_bytes is not None:
        table.add_row("all of them", "", "", f"{together_bytes / MIB:.2f}", "")
    console = Console()
    console.print(table)
    told = figures.get("two_ranks", {})
    for rank, moments in enumerate(told.get("in_use_beyond_reserved_bytes", [])):
        cells = [f"{moment} {taken / MIB:.1f}" for moment, taken in moments.items()]
        console.print(f"rank {rank}, MiB after:", ", ".join(cells))
    if "failed" in told:
        console.print("two ranks:", told["failed"])


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where a feature failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--only", nargs="+", choices=FEATURES, default=list(FEATURES), help="these features only")
    add("--output", type=Path, help="file for the figures, as JSON")
    add("--write", action="store_true", help="keep them as results/device_overheads_GPU.json")
    options = parser.parse_args()
    import_everything()
    device = forked.probe(_LONGEST_SECONDS)
    watches = [forked.Watch(number) for number in range(device["devices"])]
    for watch in watches:
        watch.is_over_by = device["management_minus_driver_bytes"]
    with tempfile.TemporaryDirectory(prefix="gmlake-overheads-") as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.environ["TRITON_CACHE_DIR"] = f"{cache}/triton"
        figures = measure(options.only, watches, device)
    show(figures)
    if options.output or options.write:
        name = f"device_overheads_{forked.slug(device['device'])}"
        print(machine.write(name, figures, path=options.output, gpu=device["device"]))
    parts = (*figures["features"].values(), figures["together"], figures.get("two_ranks", {}))
    return 1 if any("failed" in told for told in parts) else 0


if __name__ == "__main__":
    sys.exit(main())
