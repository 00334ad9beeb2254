#!/usr/bin/env python3
"""Small training programs, each with one mistake that costs memory, and some without any.

    python examples/diagnosis/mistakes.py outputs_in_a_list

Each function is an ordinary program; the line to change ends in `# mistake`. What gmlake.diagnose()
says of each is in docs/diagnose.md.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import copy
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable

    from gmlake.diagnosis.operators import Report

BATCH, WIDTH = 4096, 2048  # activations of 32 MiB, weights of 16 MiB
STEPS: Final = 4


def network(layers: int = 4) -> nn.Sequential:
    """Return a model of weights and activations."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(WIDTH, WIDTH)).cuda()


def batch(rows: int = BATCH) -> torch.Tensor:
    """Return an input on the device."""
    return torch.randn(rows, WIDTH).cuda()


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Take one step as it should be."""
    model(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


# ---- twelve mistakes


def loss_kept_with_its_graph() -> None:
    """Add up losses of a validation for a report."""
    model = network()
    total: Any = 0
    for _ in range(STEPS):
        total += (model(batch()) - 1).abs().mean()  # mistake
    print(total.item() / STEPS)


def outputs_in_a_list() -> None:
    """Keep what the model said in each step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    outputs = []
    for _ in range(STEPS):
        out = model(batch())  # mistake
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(out)


def gradients_through_evaluation() -> None:
    """Evaluate between a step and the next zero_grad()."""
    model = network(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    large = torch.randn(4 * BATCH, WIDTH)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()  # mistake
        with torch.no_grad():
            for _ in range(2):
                model(large.cuda())


def needless_clone() -> None:
    """Clone the input of a residual connection."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> None:
        residual = x.clone()  # mistake
        (model(x) * residual).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(STEPS):
        step(batch())


def gradients_of_what_is_not_trained() -> None:
    """Give the optimizer the head only, but leave gradients on for all."""
    backbone, head = network(), nn.Linear(WIDTH, WIDTH).cuda()
    model = nn.Sequential(backbone, head)
    optimizer = torch.optim.AdamW(head.parameters())
    for _ in range(STEPS):
        model(batch(BATCH // 8)).square().mean().backward()  # mistake
        optimizer.step()
        model.zero_grad()


def evaluation_without_no_grad() -> None:
    """Evaluate with graphs."""
    model = network().eval()

    def evaluate(x: torch.Tensor) -> float:
        out = model(x)  # mistake
        return float(out.square().mean())

    for _ in range(STEPS):
        evaluate(batch())


def constant_in_each_step() -> None:
    """Make the same mask again in each step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        mask = torch.ones(BATCH, WIDTH, device="cuda").tril()  # mistake
        (model(batch()) * mask).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def input_kept_through_the_step() -> None:
    """Keep the raw input beside what was made of it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(raw: torch.Tensor) -> None:
        x = raw.float()  # mistake
        model(x / 255).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(STEPS):
        step(torch.randint(0, 255, (BATCH, WIDTH)).cuda())


def graph_retained() -> None:
    """Retain the graph for a second backward pass that does not come."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        loss = model(batch()).square().mean()
        loss.backward(retain_graph=True)  # mistake
        optimizer.step()
        optimizer.zero_grad()


def master_copy() -> None:
    """Keep the float32 weights beside a model in bfloat16."""
    model = network(8)
    original = copy.deepcopy(model)  # mistake
    model = model.bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        model(batch().bfloat16()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(len(list(original.parameters())))


def on_the_device_for_the_host() -> None:
    """Send to the device what only the host looks at."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    targets = torch.randn(4 * BATCH, WIDTH).cuda()  # mistake
    for _ in range(STEPS):
        train(model, optimizer)
        print(float(targets.cpu().mean()))


class Caching(nn.Module):
    """A model that looks at its hidden states."""

    def __init__(self) -> None:
        """Begin without any."""
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.hidden: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run every layer."""
        for layer in self.layers:
            x = torch.relu(layer(x))  # mistake
            self.hidden.append(x)
        return x


def cache_never_cleared() -> None:
    """Collect hidden states, step after step."""
    model = Caching().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        train(model, optimizer)


# ---- and three without any


def plain_training() -> None:
    """Train with AdamW."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        train(model, optimizer)


def plain_evaluation() -> None:
    """Evaluate, and keep the numbers."""
    model = network().eval()
    total = 0.0
    with torch.no_grad():
        for _ in range(STEPS):
            total += functional.mse_loss(model(batch()), batch()).item()
    print(total)


class Recomputing(nn.Module):
    """A model whose blocks are computed again in the backward pass."""

    def __init__(self) -> None:
        """Have some blocks."""
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run every block."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def plain_accumulation() -> None:
    """Accumulate gradients of several batches, with checkpoints, then evaluate."""
    model = Recomputing().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        for _ in range(2):
            (model(batch()).square().mean() / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        print(float(model(batch()).mean()))


MISTAKES: Final[tuple[Callable[[], None], ...]] = (
    loss_kept_with_its_graph,
    outputs_in_a_list,
    gradients_through_evaluation,
    needless_clone,
    gradients_of_what_is_not_trained,
    evaluation_without_no_grad,
    constant_in_each_step,
    input_kept_through_the_step,
    graph_retained,
    master_copy,
    on_the_device_for_the_host,
    cache_never_cleared,
)
PLAIN: Final = (plain_training, plain_evaluation, plain_accumulation)
PROGRAMS: Final = {program.__name__: program for program in (*MISTAKES, *PLAIN)}


def marked_line(program: Callable[[], None]) -> str:
    """Return "file:line" of a program's mistake; "" where there is none."""
    source: Any = Caching if program is cache_never_cleared else program
    lines, first = inspect.getsourcelines(source)
    for number, line in enumerate(lines, start=first):
        if line.endswith("# mistake\n"):
            return f"{inspect.getsourcefile(source)}:{number}"
    return ""


def diagnosed(program: Callable[[], None]) -> Report:
    """Run a program to its end and return what is said of it."""
    with gmlake.diagnose(devices="cuda", indices="never") as report:
        program()
    return report


if __name__ == "__main__":
    for name in sys.argv[1:] or PROGRAMS:
        told = diagnosed(PROGRAMS[name])
        print(f"{name}: {marked_line(PROGRAMS[name]) or 'no mistake'}")
        print(told)
