"""STAlloc's jobs: the first stage of a pipeline, whose layers are divided among ranks, too.

The memory is kept as Megatron-LM keeps it: parameters in bfloat16, gradients of all micro-batches
in one float32 buffer for each chunk, masters and moments in float32; what was sent to the next
stage is freed at once, though its graph stays. What other ranks send is allocated, and filled by
nobody; sums over the ranks of a layer are made in place, and are left out.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from gpu.model import rotate
from gpu.networks import random_shares
from gpu.programs import parameters_in
from papers.masters import Host, Masters
from papers.schedule import turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from papers.jobs import Job, Shape

_DROPOUT = 0.1
"""Of GPT-2; the others have none."""


def places_of(length: int, width: int) -> Tensor:
    """Return cosines and sines [2, length, width] for gpu.model.rotate()."""
    places = torch.arange(length, device="cuda", dtype=torch.float32)
    pairs = torch.arange(0, width, 2, device="cuda", dtype=torch.float32)
    angles = torch.outer(places, 10_000.0 ** (-pairs / width))
    angles = torch.cat((angles, angles), dim=-1)
    return torch.stack((angles.cos(), angles.sin())).to(torch.bfloat16)


class Attention(nn.Module):
    """A rank's heads; the output is a part of the sum over the ranks."""

    def __init__(self, shape: Shape, ranks: int) -> None:
        """Make the weights on the default device."""
        super().__init__()
        self.has_places = shape.kind == "gpt2"
        self.head, self.heads = shape.head, shape.heads // ranks
        self.pairs = max(1, shape.pairs // ranks)
        wide = (self.heads + 2 * self.pairs) * self.head
        self.project_in = nn.Linear(shape.width, wide, bias=shape.kind != "llama")
        own = self.heads * self.head
        self.project_out = nn.Linear(own, shape.width, bias=shape.kind == "gpt2")

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """Map [length, batch, width] to the same shape."""
        length, batch, _ = x.shape
        parts = [count * self.head for count in (self.heads, self.pairs, self.pairs)]
        query, key, value = (
            part.view(length, batch, -1, self.head).permute(1, 2, 0, 3)
            for part in self.project_in(x).split(parts, dim=-1)
        )
        if not self.has_places:
            query, key = rotate(query, places), rotate(key, places)
        lost = _DROPOUT if self.has_places else 0.0
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            mixed = functional.scaled_dot_product_attention(
                query, key, value, dropout_p=lost, is_causal=True, enable_gqa=True
            )
        out: Tensor = self.project_out(mixed.permute(2, 0, 1, 3).reshape(length, batch, -1))
        return out


class FeedForward(nn.Module):
    """A rank's part of the inner width: gated, or with GELU as in GPT-2."""

    def __init__(self, width: int, inner: int, *, is_gated: bool) -> None:
        """Make the weights on the default device."""
        super().__init__()
        self.is_gated = is_gated
        self.widen = nn.Linear(width, 2 * inner if is_gated else inner, bias=not is_gated)
        self.narrow = nn.Linear(inner, width, bias=not is_gated)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., width] to the same shape."""
        wide = self.widen(x)
        if self.is_gated:
            gate, wide = wide.chunk(2, dim=-1)
            out: Tensor = self.narrow(functional.silu(gate) * wide)
        else:
            out = self.narrow(functional.gelu(wide))
        return out


class _Exchange(torch.autograd.Function):
    """Rows that go to other ranks for as many as come from them, and their gradients back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int) -> Tensor:  # noqa: ANN401
        """Return so many rows."""
        ctx.rows = len(x)
        return x.new_empty(rows, x.shape[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        """Return the gradient of the rows that went."""
        return gradient.new_empty(ctx.rows, gradient.shape[1]), None


class Experts(nn.Module):
    """A rank's experts, a router, and a part that sees every token."""

    def __init__(self, shape: Shape, ranks: int, draw: random.Random) -> None:
        """Make the weights on the default device. draw: the shares of the experts."""
        super().__init__()
        self.chosen, self.count, self.ranks, self.draw = shape.chosen, shape.experts, ranks, draw
        self.router = nn.Linear(shape.width, shape.experts, bias=False)
        self.shared = FeedForward(shape.width, shape.inner, is_gated=True)
        self.shared_gate = nn.Linear(shape.width, 1, bias=False)
        self.experts = nn.ModuleList(
            FeedForward(shape.width, shape.expert_inner, is_gated=True)
            for _ in range(shape.experts // ranks)
        )
        self.drawn: deque[list[int]] = deque()

    def shares(self, total: int) -> list[int]:
        """Return the rows of each expert of all ranks; those of a forward pass come again after it.

        A layer that is computed once more routes as it did the first time.
        """
        if torch.is_grad_enabled() and self.drawn:
            return self.drawn.popleft()
        shares = random_shares(self.draw, total, self.count)
        if not torch.is_grad_enabled():
            self.drawn.append(shares)
        return shares

    def forward(self, x: Tensor) -> Tensor:
        """Map [length, batch, width] to the same shape."""
        flat = x.flatten(0, 1)
        weights, _ = self.router(flat).float().softmax(dim=-1).topk(self.chosen, dim=-1)
        shares = self.shares(self.ranks * self.chosen * len(flat))
        mine = shares[: len(self.experts)]
        order = torch.randperm(self.chosen * len(flat), device=x.device) // self.chosen
        come = _Exchange.apply(flat[order], sum(mine))
        out = torch.cat(
            [expert(rows) for expert, rows in zip(self.experts, come.split(mine), strict=True)]
        )
        back = _Exchange.apply(out, len(order)) * weights.flatten()[:, None].to(x.dtype)
        total = torch.zeros_like(flat).index_add(0, order, back)
        shared = self.shared(flat) * torch.sigmoid(self.shared_gate(flat))
        mixed: Tensor = (total + shared).view_as(x)
        return mixed


class Layer(nn.Module):
    """Attention and a feed-forward part, or experts."""

    def __init__(self, shape: Shape, job: Job, draw: random.Random) -> None:
        """Make the weights on the default device."""
        super().__init__()
        is_gated = shape.kind != "gpt2"
        norm: Any = nn.RMSNorm if is_gated else nn.LayerNorm
        self.lost = 0.0 if is_gated else _DROPOUT
        self.norm_attention, self.norm_inner = norm(shape.width), norm(shape.width)
        self.attention = Attention(shape, job.tensor)
        if shape.experts:
            self.inner: nn.Module = Experts(shape, job.replicas, draw)
        else:
            self.inner = FeedForward(shape.width, shape.inner // job.tensor, is_gated=is_gated)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """Map [length, batch, width] to the same shape."""
        x = x + functional.dropout(self.attention(self.norm_attention(x), places), self.lost)
        return x + functional.dropout(self.inner(self.norm_inner(x)), self.lost)


class Chunk(nn.Module):
    """Layers of a stage that follow one another, behind the embedding where they are the first."""

    def __init__(self, shape: Shape, job: Job, draw: random.Random, *, is_first: bool) -> None:
        """Make the weights on the default device."""
        super().__init__()
        self.is_recomputed = "R" in job.strategy
        self.tokens = nn.Embedding(shape.vocab // job.tensor, shape.width) if is_first else None
        has_table = is_first and shape.kind == "gpt2"
        self.table = nn.Embedding(shape.longest, shape.width) if has_table else None
        count = shape.layers // (job.stages * job.chunks)
        self.layers = nn.ModuleList(Layer(shape, job, draw) for _ in range(count))

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """Map tokens [length, batch] or what another stage sent to [length, batch, width]."""
        if self.tokens is not None:
            x = self.tokens(x)
        if self.table is not None:
            x = x + self.table.weight[: len(x), None]
            x = functional.dropout(x, _DROPOUT)
        for layer in self.layers:
            if self.is_recomputed:
                x = checkpoint(layer, x, places, use_reentrant=True)
            else:
                x = layer(x, places)
        return x


class Gradients:
    """Gradients of one chunk in a float32 buffer, and the states of its optimizer."""

    def __init__(self, chunk: nn.Module, job: Job) -> None:
        """Make the buffer on the device, and the masters."""
        self.parameters = list(chunk.parameters())
        counts = [parameter.numel() for parameter in self.parameters]
        self.buffer = torch.zeros(sum(counts), dtype=torch.float32, device="cuda")
        self.views = self.buffer.split(counts)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.register_post_accumulate_grad_hook(self._adds_to(view))
        self.host = Host() if "O" in job.strategy else None
        shares = job.replicas if "Z" in job.strategy else 1
        self.masters = None if self.host else Masters(self.parameters, shares)

    @staticmethod
    def _adds_to(view: Tensor) -> Any:  # noqa: ANN401
        def add(parameter: Any) -> None:  # noqa: ANN401
            view.add_(parameter.grad.view(-1))
            parameter.grad = None

        return add

    def update(self) -> None:
        """Train on what was added up, and begin anew."""
        torch.nn.utils.get_total_norm(self.views)
        if self.host:
            self.host.take(self.buffer)
            self.host.give(self.parameters)
        if self.masters:
            self.masters.step(self.views)
        self.buffer.zero_()


class Stage:
    """What rank 0 of the pipeline does."""

    def __init__(self, job: Job, shape: Shape) -> None:
        """Make its chunks on the device."""
        self.job, self.shape = job, shape
        self.draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
        with parameters_in(torch.bfloat16):
            self.chunks = [
                Chunk(shape, job, self.draw, is_first=not number) for number in range(job.chunks)
            ]
        self.places = places_of(shape.longest, shape.head)
        self.gradients = [Gradients(chunk, job) for chunk in self.chunks]
        self.waiting: Sequence[deque[tuple[Tensor, Tensor]]] = [deque() for _ in self.chunks]

    def _received(self) -> Tensor:
        shape = (self.shape.longest, self.job.batch, self.shape.width)
        return torch.empty(shape, dtype=torch.bfloat16, device="cuda")

    def forward(self, number: int) -> None:
        """Let a micro-batch go through a chunk, and send it on."""
        if number:
            given = self._received().requires_grad_()
        else:
            shape = (self.shape.longest, self.job.batch)
            given = torch.randint(self.shape.vocab // self.job.tensor, shape, device="cuda")
        out = self.chunks[number](given, self.places)
        out.data = out.new_empty(1)
        self.waiting[number].append((given, out))

    def backward(self, number: int) -> None:
        """Let the gradient of the oldest micro-batch go back through a chunk."""
        _, out = self.waiting[number].popleft()
        engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001 (as Megatron does)
        engine.run_backward(
            (out,),
            (self._received(),),
            keep_graph=False,
            create_graph=False,
            inputs=(),
            allow_unreachable=True,
            accumulate_grad=True,
        )

    def step(self, index: int) -> Tensor:  # noqa: ARG002 (steps are alike)
        """Train on the micro-batches of one step."""
        for turn in turns(self.job.stages, self.job.chunks, self.job.micro_batches):
            (self.forward if turn.is_forward else self.backward)(turn.chunk)
        for gradients in self.gradients:
            gradients.update()
        return torch.zeros((), device="cuda")
