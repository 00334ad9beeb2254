"""What is done with the models."""

# mypy: disable-error-code="no-any-return, no-untyped-call"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def batch_of(lengths: list[int]) -> Tensor:
    longest = max(lengths)
    rows = [torch.ones(length, dtype=torch.long) for length in lengths]
    padded = [functional.pad(row, (0, longest - len(row))) for row in rows]
    return torch.stack(padded).cuda()


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = model(tokens)
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def train(model: nn.Module, tokens: Tensor, steps: int = 2) -> list[Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def train_in_halves(model: nn.Module, tokens: Tensor) -> None:
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(tokens)
        loss = (logits * logits).mean()
    loss.backward()


def evaluate(model: nn.Module, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return model(tokens).argmax(-1)


def generate(model: nn.Module, tokens: Tensor, count: int = 16) -> Tensor:
    kept: list[Tensor] = []
    with torch.no_grad():
        for _ in range(count):
            scores = model(tokens)
            kept.append(scores)
            kept = kept[-2:]
    return kept[-1]


def features(model: nn.Module, tokens: Tensor) -> list[Tensor]:
    seen: list[Tensor] = []

    def note(_: nn.Module, __: object, output: Tensor) -> None:
        seen.append(output.mean())

    handles = [one.register_forward_hook(note) for one in model.modules()]
    with torch.no_grad():
        model(tokens)
    for handle in handles:
        handle.remove()
    return seen


def two_losses(model: nn.Module, tokens: Tensor) -> float:
    total = 0.0
    for part in tokens.chunk(4):
        loss = loss_of(model, part)
        loss.backward()
        total += float(loss.detach())
    return float(total)


def last_words(model: nn.Module, tokens: Tensor) -> list[Tensor]:
    found = []
    with torch.no_grad():
        for part in tokens.chunk(4):
            logits = model(part)
            found.append(logits[:, -1].clone())
    return found
