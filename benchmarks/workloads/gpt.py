"""Workloads that train or run a GPT."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-untyped-decorators, disable-error-code="import-not-found"

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from examples.train_gpt import GPT, language_loss, random_batch
from torch import Tensor, nn

if TYPE_CHECKING:
    from workloads.session import Session


class Trainer:
    """A GPT with its optimizer, and one training step."""

    def __init__(self, session: Session, size: str, *, has_checkpoints: bool = False) -> None:
        """Make both on the session's device."""
        self.config = session.config(size)
        self.device = session.device
        with self.device:
            self.model = GPT(self.config, has_checkpoints=has_checkpoints)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, foreach=True)
        session.mark("model")

    def tokens(self, batch: int, sequence: int | None = None) -> Tensor:
        """Return random tokens [batch, sequence + 1], the model's whole context unless given."""
        return random_batch(self.config, batch, sequence or self.config.context, self.device)

    def accumulate(self, tokens: Tensor, share: float = 1.0) -> None:
        """Add one batch's gradients."""
        (language_loss(self.model, tokens) * share).backward()

    def update(self) -> None:
        """Apply the gradients and drop them."""
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self, tokens: Tensor) -> None:
        """Train on one batch."""
        self.accumulate(tokens)
        self.update()


def train(session: Session, size: str, batch: int, *, has_checkpoints: bool = False) -> None:
    """Every step the same."""
    trainer = Trainer(session, size, has_checkpoints=has_checkpoints)
    for step in range(session.steps):
        trainer.step(trainer.tokens(session.batch(batch)))
        session.mark(f"step {step + 1}")


def lengths(steps: int, longest: int) -> list[int]:
    """Return a sequence length for each step, from a quarter of the longest up."""
    draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
    return [draw.randint(max(1, longest // 4), longest) for _ in range(steps)]


def train_varying(session: Session, size: str, batch: int, *, has_checkpoints: bool) -> None:
    """Another sequence length in each step."""
    trainer = Trainer(session, size, has_checkpoints=has_checkpoints)
    for step, length in enumerate(lengths(2 * session.steps, trainer.config.context)):
        trainer.step(trainer.tokens(session.batch(batch), length))
        session.mark(f"step {step + 1}, {length} tokens")


def train_accumulating(session: Session, size: str, batch: int, parts: int) -> None:
    """Several small batches for each update."""
    trainer = Trainer(session, size)
    for step in range(session.steps):
        for _ in range(parts):
            trainer.accumulate(trainer.tokens(session.batch(batch)), 1 / parts)
        trainer.update()
        session.mark(f"step {step + 1}")


def train_and_evaluate(session: Session, size: str, batch: int) -> None:
    """Training and evaluation in turn, with empty_cache between the phases."""
    trainer = Trainer(session, size)
    for phase in range(session.steps):
        for _ in range(2):
            trainer.step(trainer.tokens(session.batch(batch)))
        session.mark(f"trained {phase + 1}")
        session.empty_cache()
        evaluate(trainer, 4 * session.batch(batch), trainer.config.context // (phase % 3 + 1))
        session.mark(f"evaluated {phase + 1}")
        session.empty_cache()
        session.empty_cache()  # the second has nothing to give back


def evaluate(trainer: Trainer, batch: int, sequence: int) -> None:
    """Sum the loss of a few batches without gradients."""
    trainer.model.eval()
    total = torch.zeros((), device=trainer.device)
    with torch.no_grad():
        for _ in range(3):
            total += language_loss(trainer.model, trainer.tokens(batch, sequence))
    trainer.model.train()


def train_until_out_of_memory(session: Session, size: str, batch: int) -> None:
    """Double the batch in each step; where memory runs out, go on with half of it."""
    trainer = Trainer(session, size)
    size_now = session.batch(batch)
    for step in range(4 * session.steps):
        if fits(trainer, size_now):
            session.mark(f"step {step + 1}, batch {size_now}")
            size_now *= 2
        else:
            session.mark(f"step {step + 1}, batch {size_now} ran out of memory")
            size_now = max(1, size_now // 4)


def fits(trainer: Trainer, batch: int) -> bool:
    """Train on one batch; False, with nothing left behind, where memory runs out."""
    try:
        trainer.step(trainer.tokens(batch))
    except torch.OutOfMemoryError:
        pass
    else:
        return True
    trainer.optimizer.zero_grad()
    return False


def train_in_tight_memory(session: Session, size: str, batch: int) -> None:
    """Sequence lengths that vary where little is left: cached memory must go back again and again.

    A step that fails all the same is tried once more from an empty cache, and skipped then.
    """
    trainer = Trainer(session, size)
    for step, length in enumerate(lengths(4 * session.steps, trainer.config.context)):
        tokens = trainer.tokens(session.batch(batch), length)
        try:
            trainer.step(tokens)
        except torch.OutOfMemoryError:
            failed = True
        else:
            failed = False
        if failed:
            trainer.optimizer.zero_grad()
            session.empty_cache()
            fits(trainer, max(1, session.batch(batch) // 2))
        session.mark(f"step {step + 1}, {length} tokens")
