#!/usr/bin/env python3
"""Train a GPT on random tokens and write down what its memory did.

    python examples/train_gpt.py --size small --batch 8
    gmlake replay gpt_snapshot.pickle

The script knows nothing of gmlake: it is an ordinary training loop that switches on PyTorch's own
memory history before it starts and dumps a snapshot when it is done. On a machine without a GPU
run it on the stand-in, where memory behaves as on a device and kernels compute nothing:

    python -m gmlake.standin --capacity 80GiB examples/train_gpt.py --size 1.3b
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint
except ImportError as problem:
    sys.exit(f"train_gpt: {problem}; install it with: pip install torch")

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Config:
    """Sizes of a GPT; `width` is a multiple of `heads`."""

    layers: int
    width: int
    heads: int
    context: int
    vocab: int = 50257


# GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2;
# 1.3b: GPT-Neo 1.3B (Black et al., 2021), its layers, width, heads and context.
SIZES = {
    "tiny": Config(layers=2, width=64, heads=4, context=64, vocab=512),
    "small": Config(layers=12, width=768, heads=12, context=1024),
    "medium": Config(layers=24, width=1024, heads=16, context=1024),
    "large": Config(layers=36, width=1280, heads=20, context=1024),
    "1.3b": Config(layers=24, width=2048, heads=16, context=2048),
}


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: Config) -> None:
        """Make the projections."""
        super().__init__()
        self.heads = config.heads
        self.project_in = nn.Linear(config.width, 3 * config.width)
        self.project_out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, sequence, width] to the same shape."""
        batch, sequence, width = x.shape
        shape = (batch, sequence, self.heads, width // self.heads)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.project_in(x).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.project_out(mixed.transpose(1, 2).reshape(batch, sequence, width))
        return out


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, config: Config) -> None:
        """Make both branches."""
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm_mlp = nn.LayerNorm(config.width)
        self.widen = nn.Linear(config.width, 4 * config.width)
        self.narrow = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, sequence, width] to the same shape."""
        x = x + self.attention(self.norm_attention(x))
        out: Tensor = x + self.narrow(functional.gelu(self.widen(self.norm_mlp(x))))
        return out


class GPT(nn.Module):
    """A GPT whose output layer shares the weight of its token embedding.

    Args:
        config: Its sizes.
        has_checkpoints: Keep only each block's input for the backward pass and compute the rest
            of its activations a second time there.
    """

    def __init__(self, config: Config, *, has_checkpoints: bool = False) -> None:
        """Make the layers, on the default device."""
        super().__init__()
        self.config = config
        self.has_checkpoints = has_checkpoints
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens [batch, sequence] to logits [batch, sequence, vocab]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            if self.has_checkpoints and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


def random_batch(config: Config, batch: int, sequence: int, device: torch.device) -> Tensor:
    """Return tokens [batch, sequence + 1]; each one's successor is what to predict."""
    return torch.randint(config.vocab, (batch, sequence + 1), device=device)


def language_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return the mean cross-entropy of the model's predictions of tokens [batch, sequence + 1]."""
    with torch.autocast(tokens.device.type, torch.bfloat16):
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train(model: GPT, steps: int, batch: int, sequence: int, device: torch.device) -> None:
    """Train for some steps on random tokens; print a line for each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        tokens = random_batch(model.config, batch, sequence, device)
        loss = language_loss(model, tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss_value = loss.item()
        line = f"step {step}: loss {loss_value:.3f}, {time.perf_counter() - begin:.2f} s"
        if device.type == "cuda":
            line += f", peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB"
        print(line, flush=True)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a GPT on random tokens and dump a snapshot of its memory history.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model")
    parser.add_argument("--batch", type=_positive, default=4, help="sequences per step")
    parser.add_argument(
        "--sequence",
        type=_positive,
        default=argparse.SUPPRESS,
        help="tokens per sequence (default: the model's context)",
    )
    parser.add_argument("--steps", type=_positive, default=3, help="optimizer steps")
    parser.add_argument(
        "--checkpoint",
        action="store_true",
        help="recompute each block's activations in the backward pass",
    )
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to train"
    )
    parser.add_argument(
        "--snapshot",
        type=Path,
        default=Path("gpt_snapshot.pickle"),
        help="file for the memory history (on cuda)",
    )
    options = parser.parse_args(arguments)
    context = SIZES[options.size].context
    options.sequence = getattr(options, "sequence", context)
    if options.sequence > context:
        parser.error(f"--sequence {options.sequence} is longer than the context of {context}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _options(arguments)
    device = torch.device(options.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        # Before the first tensor, so that the snapshot holds the whole story.
        torch.cuda.memory._record_memory_history(stacks="python")  # noqa: SLF001 (its only name)
    with device:  # parameters come into being where they are used
        model = GPT(SIZES[options.size], has_checkpoints=options.checkpoint)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"GPT {options.size}: {count / 1e6:.1f} M parameters on {device}", flush=True)
    train(model, options.steps, options.batch, options.sequence, device)
    if device.type == "cuda":
        print(torch.cuda.memory_summary(device))
        torch.cuda.memory._dump_snapshot(str(options.snapshot))  # noqa: SLF001 (its only name)
        print(f"wrote {options.snapshot}; look at it with: gmlake replay {options.snapshot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
