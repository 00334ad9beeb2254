"""A workload without a model: tensors of random sizes that come and go on three streams.

It asks more of an allocator's rules than programs do: sizes around every limit, memory that one
stream has and another uses, empty_cache at any time, and requests for more than there is.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workloads.session import SideStream

if TYPE_CHECKING:
    from workloads.session import Session

KIB, MIB = 1 << 10, 1 << 20
LIMITS = (512, MIB, 2 * MIB, 10 * MIB, 20 * MIB)


def draw_bytes(draw: random.Random) -> int:
    """Return a size: mostly small, often next to a limit of PyTorch's rules, at times large."""
    (kind,) = draw.choices(("small", "limit", "middle", "large"), (40, 20, 30, 10))
    if kind == "small":
        return draw.randint(1, 64 * KIB)
    if kind == "limit":
        return max(1, draw.choice(LIMITS) + draw.choice((-512, -1, 0, 1, 512)))
    if kind == "middle":
        return draw.randint(MIB // 2, 30 * MIB)
    return draw.randint(30 * MIB, 200 * MIB)


class Storm:
    """What is live, and one step."""

    def __init__(self, session: Session, seed: int) -> None:
        """Begin with nothing."""
        self.session = session
        self.draw = random.Random(seed)  # noqa: S311 - no secret, only repeatable
        self.sides = [SideStream(session.device) for _ in range(2)]
        self.live: list[Tensor] = []

    def step(self) -> None:
        """Allocate, free, hand over to another stream, or empty the cache."""
        (kind,) = self.draw.choices(("free", "use", "empty", "allocate"), (400, 100, 3, 497))
        if self.live and kind == "free":
            self.live.pop(self.draw.randrange(len(self.live)))
        elif self.live and kind == "use":
            used = self.draw.choice(self.live)
            side = self.draw.choice(self.sides)
            side.after_main(used)
            with side.scope():
                used.zero_()
        elif kind == "empty":
            self.session.empty_cache()
        elif not self.allocate(draw_bytes(self.draw)):
            del self.live[:: self.draw.randint(1, 3)]

    def allocate(self, size_bytes: int) -> bool:
        """Make a tensor on one of three streams; False where there is no room."""
        side = self.draw.choice([None, None, *self.sides])
        try:
            if side is None:
                tensor = torch.empty(size_bytes, dtype=torch.uint8, device=self.session.device)
            else:
                with side.scope():
                    tensor = torch.empty(size_bytes, dtype=torch.uint8, device=self.session.device)
        except torch.OutOfMemoryError:
            return False
        self.live.append(tensor)
        return True


def run(session: Session, rounds: int, seed: int) -> None:
    """Run so many rounds of 1000 steps for each step of the session."""
    storm = Storm(session, seed)
    for number in range(session.steps * rounds):
        for _ in range(1000):
            storm.step()
        session.mark(f"round {number + 1}, {len(storm.live)} live")
