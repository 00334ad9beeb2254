"""Workloads whose memory is used by more than one stream."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.gpt import Trainer
from workloads.session import SideStream
from workloads.vision import image_size, make_network

if TYPE_CHECKING:
    from workloads.session import Session


class Prefetcher:
    """Copies the next pictures to the device and prepares them, beside the training step."""

    def __init__(self, session: Session, batch: int) -> None:
        """Make a few batches in host memory and start with the first."""
        self.side = SideStream(session.device)
        self.device = session.device
        pixels = image_size(session)
        shape = (session.batch(batch), 3, pixels, pixels)
        self.batches = [torch.zeros(shape, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self.turn = 0
        self._load()

    def _load(self) -> None:
        pictures = self.batches[self.turn % 2]
        self.turn += 1
        with self.side.scope():
            on_device = pictures.to(self.device, non_blocking=True)
            shifted = on_device.float() / 255 - 0.5
            self.ready = functional.pad(shifted, (2, 2, 2, 2))[..., 2:-2, 2:-2].contiguous()

    def next(self) -> Tensor:
        """Return prepared pictures [batch, 3, height, width] and start on the next."""
        pictures = self.ready
        self.side.before_main(pictures)
        self._load()
        return pictures


def train_prefetching(session: Session, batch: int) -> None:
    """Train a network for pictures that a second stream copies and prepares one step ahead."""
    model = make_network(session)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    pictures = Prefetcher(session, batch)
    session.mark("model")
    for step in range(2 * session.steps):
        shown = pictures.next()
        labels = torch.zeros(len(shown), dtype=torch.long, device=session.device)
        functional.cross_entropy(model(shown), labels).backward()
        del shown
        optimizer.step()
        optimizer.zero_grad()
        session.mark(f"step {step + 1}")


class TwoExperts(nn.Module):
    """A block with two wide branches, the second of which runs on a stream of its own."""

    def __init__(self, width: int, side: SideStream) -> None:
        """Make both branches."""
        super().__init__()
        self.side = side
        self.norm = nn.LayerNorm(width)
        self.first = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.second = nn.Sequential(
            nn.Linear(width, 6 * width), nn.GELU(), nn.Linear(6 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, sequence, width] to the same shape."""
        normed = self.norm(x)
        self.side.after_main(normed)
        with self.side.scope():
            second = self.second(normed)
        first = self.first(normed)
        self.side.before_main(second)
        out: Tensor = x + first + second
        return out


def train_experts(session: Session, size: str, batch: int) -> None:
    """Train branches that run on two streams at once, forward and backward."""
    config = session.config(size)
    side = SideStream(session.device)
    with session.device:
        model = nn.Sequential(*(TwoExperts(config.width, side) for _ in range(config.layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    session.mark("model")
    for step in range(session.steps):
        shape = (session.batch(batch), config.context // (step % 2 + 1), config.width)
        x = torch.randn(shape, device=session.device)
        with torch.autocast(session.device.type, torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        session.mark(f"step {step + 1}")


class Offloader:
    """Keeps large activations in host memory between forward and backward pass.

    A side stream copies both ways; to be used with torch.autograd.graph.saved_tensors_hooks.
    """

    def __init__(self, device: torch.device, least_bytes: int) -> None:
        """Move tensors of at least `least_bytes`."""
        self.side = SideStream(device)
        self.device = device
        self.least_bytes = least_bytes

    def pack(self, tensor: Tensor) -> Any:  # noqa: ANN401 - whatever unpack understands
        """Copy a tensor to the host, if it is large and no parameter."""
        if tensor.nbytes < self.least_bytes or tensor.is_leaf or not tensor.is_contiguous():
            return tensor
        self.side.after_main(tensor)
        with self.side.scope():
            pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            pinned.copy_(tensor, non_blocking=True)
        return (pinned,)

    def unpack(self, packed: Any) -> Tensor:  # noqa: ANN401 - what pack returned
        """Return the tensor, on the device again."""
        if isinstance(packed, Tensor):
            return packed
        self.side.after_main()
        with self.side.scope():
            tensor: Tensor = packed[0].to(self.device, non_blocking=True)
        self.side.before_main(tensor)
        return tensor


def train_offloading(session: Session, size: str, batch: int) -> None:
    """Train a GPT whose activations wait in host memory for the backward pass."""
    trainer = Trainer(session, size)
    offloader = Offloader(session.device, 1 << 20)
    hooks = torch.autograd.graph.saved_tensors_hooks(offloader.pack, offloader.unpack)
    for step in range(session.steps):
        tokens = trainer.tokens(session.batch(batch))
        with hooks:
            trainer.step(tokens)
        session.mark(f"step {step + 1}")
