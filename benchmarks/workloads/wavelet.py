"""Two trainings that take turns on one device, as in Wavelet (Wang et al., MLSys 2021).

Each trains a BERT-base (Devlin et al., 2019) of its own on a stream of its own, half a step apart:
while the forward pass of one fills memory, the backward pass of the other lets go of as much. Their
live bytes together stay near those of one training and a half, if memory can go from one stream to
the other; where it cannot, each stream keeps its own peak.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-untyped-decorators, allow-subclassing-any
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workloads.session import Session

DROPPED = 0.1


@dataclass(frozen=True)
class Bert:
    """Sizes of a BERT; the defaults are BERT-base's."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    inner: int = 3072
    context: int = 512
    vocab: int = 30522


def sizes_of(session: Session) -> Bert:
    """Return BERT-base, or what the session's scale leaves of it."""
    full, scale = Bert(), session.scale
    width = min(full.width, scale.width)
    return Bert(
        layers=min(full.layers, scale.layers),
        width=width,
        heads=min(full.heads, max(1, width // 16)),
        inner=4 * width,
        context=min(full.context, scale.tokens),
        vocab=min(full.vocab, scale.vocab),
    )


class Drop(torch.autograd.Function):
    """Dropout by a given mask, so that a training's numbers do not depend on its neighbour's."""

    @staticmethod
    def forward(context: Any, x: Tensor, kept: Tensor) -> Tensor:  # noqa: ANN401
        """Return x where `kept`, scaled up, else zeros."""
        context.save_for_backward(kept)
        return (x * kept).mul_(1 / (1 - DROPPED))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        """Do the same with the gradient."""
        (kept,) = context.saved_tensors
        return (gradient * kept).mul_(1 / (1 - DROPPED)), None


def drop(x: Tensor, draw: torch.Generator) -> Tensor:
    """Drop a tenth of x, drawn by `draw`."""
    kept = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    out: Tensor = Drop.apply(x, kept.bernoulli_(1 - DROPPED, generator=draw))
    return out


class Layer(nn.Module):
    """Attention over all tokens, then a feed-forward part, each normed after it is added."""

    def __init__(self, sizes: Bert) -> None:
        """Make the layers, on the default device."""
        super().__init__()
        self.heads = sizes.heads
        self.project_in = nn.ModuleList(nn.Linear(sizes.width, sizes.width) for _ in range(3))
        self.project_out = nn.Linear(sizes.width, sizes.width)
        self.norm_attention = nn.LayerNorm(sizes.width)
        self.widen = nn.Linear(sizes.width, sizes.inner)
        self.narrow = nn.Linear(sizes.inner, sizes.width)
        self.norm_inner = nn.LayerNorm(sizes.width)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def _attend(self, x: Tensor, draw: torch.Generator) -> Tensor:
        query, key, value = (self._split(part(x)) for part in self.project_in)
        scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        mixed = drop(scores.softmax(dim=-1), draw) @ value
        return drop(self.project_out(mixed.transpose(1, 2).reshape(x.shape)), draw)

    def forward(self, x: Tensor, draw: torch.Generator) -> Tensor:
        """Map [batch, sequence, width] to the same shape."""
        x = self.norm_attention(x + self._attend(x, draw))
        inner = functional.gelu(self.widen(x))
        out: Tensor = self.norm_inner(x + drop(self.narrow(inner), draw))
        return out


class Ends(nn.Module):
    """What comes before the layers and after them; the table of words is in both."""

    def __init__(self, sizes: Bert) -> None:
        """Make the layers, on the default device."""
        super().__init__()
        self.words = nn.Embedding(sizes.vocab, sizes.width)
        self.places = nn.Embedding(sizes.context, sizes.width)
        self.norm = nn.LayerNorm(sizes.width)
        self.transform = nn.Linear(sizes.width, sizes.width)
        self.norm_head = nn.LayerNorm(sizes.width)
        nn.init.normal_(self.words.weight, std=0.02)

    def embed(self, words: Tensor, draw: torch.Generator) -> Tensor:
        """Map words [batch, sequence] to [batch, sequence, width]."""
        places = torch.arange(words.shape[1], device=words.device)
        return drop(self.norm(self.words(words) + self.places(places)), draw)

    def loss(self, x: Tensor, words: Tensor) -> Tensor:
        """Return the mean cross-entropy of each word, as seen from [batch, sequence, width]."""
        x = self.norm_head(functional.gelu(self.transform(x)))
        logits = functional.linear(x, self.words.weight)
        return functional.cross_entropy(logits.flatten(0, 1), words.flatten())


@dataclass
class Cut:
    """Where a forward pass was cut between two layers: what one made, and what the next got."""

    made: Tensor
    given: Tensor


@dataclass
class Job:
    """One training. Its passes yield after each layer, so that another can go on meanwhile.

    Both passes must be run with `stream` as the current one. lengths: tokens of each step.
    """

    sizes: Bert
    batch: int
    device: torch.device
    seed: int
    lengths: list[int]
    losses: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make model, optimizer and stream."""
        self.stream = torch.cuda.Stream(self.device)
        self.draw = torch.Generator(self.device).manual_seed(self.seed)
        torch.manual_seed(self.seed)
        with torch.cuda.stream(self.stream), self.device:
            self.ends = Ends(self.sizes)
            self.layers = nn.ModuleList(Layer(self.sizes) for _ in range(self.sizes.layers))
            parameters = [*self.ends.parameters(), *self.layers.parameters()]
            self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, foreach=True)
        self.cuts: list[Cut] = []
        self.loss: Tensor | None = None

    def _cut(self, made: Tensor) -> Tensor:
        given = made.detach().requires_grad_()
        self.cuts.append(Cut(made, given))
        return given

    def forward(self) -> Iterator[None]:
        """Compute the loss of a batch of random words."""
        shape = (self.batch, self.lengths[len(self.losses)])
        words = torch.randint(self.sizes.vocab, shape, device=self.device, generator=self.draw)
        x = self._cut(self.ends.embed(words, self.draw))
        yield
        for layer in self.layers:
            x = self._cut(layer(x, self.draw))
            yield
        self.loss = self.ends.loss(x, words)
        self.losses.append(self.loss.detach())

    def backward(self) -> Iterator[None]:
        """Compute the gradients, from the last layer to the first, and apply them."""
        assert self.loss is not None  # noqa: S101 - for the type checker
        self.loss.backward()
        self.loss = None
        yield
        while self.cuts:
            cut = self.cuts.pop()
            gradient, cut.given.grad = cut.given.grad, None
            cut.made.backward(gradient)
            del cut, gradient
            yield
        self.optimizer.step()
        self.optimizer.zero_grad()

    def advance(self, part: Iterator[None]) -> bool:
        """Run the next piece of a pass on the stream; False where there is none."""
        with torch.cuda.stream(self.stream):
            return next(part, self) is not self

    def finish(self, part: Iterator[None]) -> None:
        """Run a pass to its end."""
        while self.advance(part):
            pass


def interleave(filling: Job, emptying: Job) -> None:
    """Run the forward pass of one and the backward pass of the other, layer by layer."""
    forward, backward = filling.forward(), emptying.backward()
    is_going = True
    while is_going:
        is_going = emptying.advance(backward) | filling.advance(forward)


def make_jobs(session: Session, batch: int, *, varies: bool) -> tuple[Job, Job]:
    """Return two trainings with as many steps as the session's."""
    sizes = sizes_of(session)
    draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
    jobs = []
    for seed in range(2):
        lengths = [
            draw.randint(sizes.context // 4, sizes.context) if varies else sizes.context
            for _ in range(session.steps + 1)
        ]
        jobs.append(Job(sizes, session.batch(batch), session.device, seed, lengths))
    session.mark("model")
    return jobs[0], jobs[1]


def train(session: Session, batch: int, *, varies: bool = False) -> list[Tensor]:
    """Train both by one thread, a layer of one and a layer of the other in turn.

    varies: another sequence length in each step. Returns the losses.
    """
    first, second = make_jobs(session, batch, varies=varies)
    first.finish(first.forward())
    for step in range(session.steps):
        interleave(second, first)
        interleave(first, second)
        session.mark(f"step {step + 1}")
    first.cuts.clear()
    return first.losses + second.losses
