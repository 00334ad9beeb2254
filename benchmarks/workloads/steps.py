"""Programs of many kinds whose steps are told apart by marks: what planning is measured with."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any
# mypy: disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed
from torch.utils.checkpoint import checkpoint

from gpu.networks import Mixture, MixtureLayer
from gpu.programs import LLAMAS, MIXTURES, ShardedTraining, Training, parameters_in
from workloads.catalog import WORKLOADS
from workloads.gpt import Trainer, evaluate
from workloads.sharing import SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workloads.session import Session


def train_three_lengths(
    session: Session, size: str, batch: int, *, has_checkpoints: bool = False
) -> None:
    """One of three sequence lengths in each step, at random."""
    trainer = Trainer(session, size, has_checkpoints=has_checkpoints)
    draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
    for step in range(4 * session.steps):
        length = trainer.config.context * draw.choice((2, 3, 4)) // 4
        trainer.step(trainer.tokens(session.batch(batch), length))
        session.mark(f"step {step + 1}, {length} tokens")


def train_and_validate(session: Session, size: str, batch: int) -> None:
    """A longer batch is evaluated after every third training step."""
    trainer = Trainer(session, size)
    for step in range(4 * session.steps):
        if (step + 1) % 4 == 0:
            evaluate(trainer, 2 * session.batch(batch), trainer.config.context)
        else:
            trainer.step(trainer.tokens(session.batch(batch)))
        session.mark(f"step {step + 1}")


def train_zeroing_first(session: Session, size: str, batch: int) -> None:
    """Gradients live from a step into the next, and the output until that has made its own."""
    trainer = Trainer(session, size)
    output = None
    for step in range(2 * session.steps):
        trainer.optimizer.zero_grad()
        tokens = trainer.tokens(session.batch(batch))
        output = trainer.model(tokens[:, :-1])
        output.float().square().mean().backward()
        trainer.optimizer.step()
        session.mark(f"step {step + 1}")
    del output


class _Layer(MixtureLayer):
    """A layer of a mixture that is computed again in the backward pass."""

    def forward(self, x: Tensor, shares: Sequence[int]) -> Tensor:
        """Map [batch, sequence, width] to the same shape."""
        return checkpoint(super().forward, x, shares, use_reentrant=False)  # type: ignore[no-any-return]


_MIXTURE = replace(MIXTURES["full"], layers=4)


def train_mixture(
    session: Session, *, has_checkpoints: bool = False, repeats: bool = False
) -> None:
    """A mixture of experts; their shares of the tokens differ in each step unless it `repeats`."""
    is_tiny = session.scale.name == "tiny"
    sizes = replace(_MIXTURE, layers=2, width=64, heads=4, tokens=64) if is_tiny else _MIXTURE
    with parameters_in(torch.bfloat16):
        model = Mixture(sizes)
        if has_checkpoints:
            model.layers = torch.nn.ModuleList(_Layer(sizes) for _ in range(sizes.layers))
    training = Training(model)
    draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
    session.mark("model")
    for step in range(2 * session.steps):
        tokens = torch.randint(sizes.vocab, (sizes.batch, sizes.tokens + 1), device=session.device)
        training.update(model.loss(tokens, random.Random(0) if repeats else draw))  # noqa: S311
        session.mark(f"step {step + 1}")


def train_sharded(session: Session) -> None:
    """FSDP2 with one process, and another length in each step."""
    store = distributed.HashStore()
    distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    sizes = LLAMAS["tiny"] if session.scale.name == "tiny" else replace(LLAMAS["2b"], layers=3)
    training = ShardedTraining(sizes, 2 * session.steps)
    session.mark("model")
    for step in range(2 * session.steps):
        training.step(step)
        session.mark(f"step {step + 1}")


def _from_catalog(*names: str) -> dict[str, Scenario]:
    return {
        name: Scenario(
            WORKLOADS[name].run, WORKLOADS[name].help, WORKLOADS[name].limit_gib.get("short", 0)
        )
        for name in names
    }


PROGRAMS: dict[str, Scenario] = {
    **_from_catalog("gpt2-small", "gpt2-medium", "gpt2-medium-checkpoint", "1.3b-checkpoint"),
    "three-lengths": Scenario(
        partial(train_three_lengths, size="medium", batch=4), "one of three lengths in each step"
    ),
    "three-lengths-checkpoint": Scenario(
        partial(train_three_lengths, size="medium", batch=8, has_checkpoints=True),
        "the same with activations computed twice",
    ),
    **_from_catalog("varying", "varying-checkpoint", "tight", "accumulation", "evaluation"),
    "validation": Scenario(
        partial(train_and_validate, size="small", batch=4), "evaluation after every third step"
    ),
    "zero-first": Scenario(
        partial(train_zeroing_first, size="medium", batch=4),
        "gradients and outputs live into the next step",
    ),
    **_from_catalog("decode", "convolutions", "lora"),
    "moe": Scenario(train_mixture, "a mixture of experts, other shares in each step"),
    "moe-checkpoint": Scenario(
        partial(train_mixture, has_checkpoints=True), "the same with activations computed twice"
    ),
    "moe-repeated": Scenario(
        partial(train_mixture, repeats=True), "the same shares of the tokens in each step"
    ),
    "fsdp2": Scenario(train_sharded, "a Llama under FSDP2, another length in each step"),
    **{
        name: SCENARIOS[name]
        for name in ("wavelet", "sharded", "buckets", "prefetch", "experts", "offload")
    },
}
