"""Programs of several streams by name: what streams may lend each other, and what it costs.

The streams differ in how they are used: equals that take turns, one main stream with small ones
for communication, a chain, many that serve requests, none with a pattern.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-untyped-decorators, disable-error-code="import-not-found"

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from examples.train_gpt import GPT, Block
from torch import Tensor, nn
from torch.nn import functional

from workloads import gpt, storm, streams, wavelet
from workloads.session import SideStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workloads.session import Session

MIB = 1 << 20


# ---- one main stream, and small ones for communication -------------------------------------------


class Sharded:
    """A layer whose parameters are gathered before each use and dropped after it, as FSDP does."""

    def __init__(self, block: Block, gathers: SideStream) -> None:
        """Keep an eighth of the parameters; the rest is let go."""
        self.block, self.gathers = block, gathers
        self.parameters = list(block.parameters())
        count = sum(parameter.numel() for parameter in self.parameters)
        self.shard = torch.zeros(-(-count // 8), device=self.parameters[0].device)
        self.whole = torch.empty(8 * self.shard.numel(), device=self.shard.device)
        self.size_bytes = self.whole.nbytes
        offset = 0
        for parameter in self.parameters:
            parameter.data = self.whole[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
        self.whole.untyped_storage().resize_(0)

    def gather(self) -> None:
        """Begin to fetch the parameters, unless they are there."""
        if self.whole.untyped_storage().nbytes():
            return
        with self.gathers.scope(), torch.no_grad():
            self.whole.untyped_storage().resize_(self.size_bytes)
            self.whole.data.view(8, -1).copy_(self.shard.expand(8, -1))

    def use(self) -> None:
        """Let the current stream wait for the parameters."""
        self.gather()
        self.gathers.before_main(self.whole)

    def drop(self) -> None:
        """Let the parameters go."""
        self.whole.untyped_storage().resize_(0)

    def reduce(self, reduces: SideStream) -> Tensor:
        """Reduce the gradients to a shard on another stream; return the shard's."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        reduces.after_main(*gradients)
        with reduces.scope():
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            padded = functional.pad(flat, (0, self.whole.numel() - flat.numel()))
            reduced: Tensor = padded.view(8, -1).mean(dim=0)
        for parameter in self.parameters:
            parameter.grad = None
        self.shard.grad = reduced
        return reduced


def train_sharded(session: Session, size: str, batch: int) -> None:
    """Train layers that are gathered one ahead, forward and backward, and reduced behind."""
    config = session.config(size)
    gathers, reduces = SideStream(session.device), SideStream(session.device)
    with session.device:
        layers = [Sharded(Block(config), gathers) for _ in range(config.layers)]
    optimizer = torch.optim.AdamW([layer.shard for layer in layers], lr=3e-4, foreach=True)
    session.mark("model")
    for step in range(session.steps):
        shape = (session.batch(batch), config.context, config.width)
        x, cuts = torch.randn(shape, device=session.device), []
        for layer, following in zip(layers, [*layers[1:], None], strict=True):
            if following is not None:
                following.gather()
            layer.use()
            given = x.detach().requires_grad_()
            with torch.autocast(session.device.type, torch.bfloat16, cache_enabled=False):
                x = layer.block(given)
            cuts.append((given, x))
            layer.drop()
        gradient, reduced = torch.ones_like(x), []
        for layer, following in zip(layers[::-1], [*layers[-2::-1], None], strict=True):
            if following is not None:
                following.gather()
            layer.use()
            given, x = cuts.pop()
            x.backward(gradient)
            assert given.grad is not None  # noqa: S101 - for the type checker
            gradient, given.grad = given.grad, None
            del given, x
            layer.drop()
            reduced.append(layer.reduce(reduces))
        reduces.before_main(*reduced)
        del reduced
        optimizer.step()
        optimizer.zero_grad()
        session.mark(f"step {step + 1}")


def train_in_buckets(session: Session, size: str, batch: int) -> None:
    """Train a GPT whose gradients are averaged in buckets on a second stream, as DDP does."""
    trainer = gpt.Trainer(session, size)
    averages = SideStream(session.device)
    bucket: list[Tensor] = []

    def average() -> None:
        averages.after_main(*bucket)
        with averages.scope():
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket]).div_(2)
            offset = 0
            for gradient in bucket:
                gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
                offset += gradient.numel()
        bucket.clear()

    def collect(parameter: Tensor) -> None:
        if parameter.grad is not None:
            bucket.append(parameter.grad)
        if sum(gradient.nbytes for gradient in bucket) > 25 * MIB:
            average()

    for parameter in trainer.model.parameters():
        parameter.register_post_accumulate_grad_hook(collect)
    for step in range(session.steps):
        trainer.accumulate(trainer.tokens(session.batch(batch)))
        if bucket:
            average()
        averages.before_main()
        trainer.update()
        session.mark(f"step {step + 1}")


# ---- equals --------------------------------------------------------------------------------------


def generate(model: GPT, prompt: Tensor, count: int) -> Iterator[None]:
    """Extend tokens [batch, prompt] by `count`, yielding after each."""
    caches: list[gpt.Cache | None] = [None] * model.config.layers
    fresh, length = prompt, 0
    for _ in range(count):
        places = torch.arange(length, length + fresh.shape[1], device=prompt.device)
        x = model.tokens(fresh) + model.positions(places)
        length += fresh.shape[1]
        for index, block in enumerate(model.blocks):
            assert isinstance(block, Block)  # noqa: S101 - for the type checker
            x, caches[index] = gpt.run_block(block, x, caches[index], model.config)
        logits = functional.linear(model.norm(x[:, -1:]), model.tokens.weight)
        fresh = logits.argmax(dim=-1)
        yield


@torch.inference_mode()
def serve(session: Session, size: str, batch: int, workers: int) -> None:
    """Answer requests of many lengths, each by the first of several streams that is idle."""
    config = session.config(size)
    with session.device:
        model = GPT(config).to(torch.bfloat16).eval()
    session.mark("model")
    sides = [SideStream(session.device) for _ in range(workers)]
    for side in sides:
        side.after_main()
    draw = random.Random(0)  # noqa: S311 - no secret, only repeatable

    def request() -> Iterator[None]:
        prompt = draw.randint(config.context // 16, config.context // 2)
        shape = (draw.randint(1, session.batch(batch)), prompt)
        tokens = torch.randint(config.vocab, shape, device=session.device)
        return generate(model, tokens, draw.randint(2, min(24, config.context - prompt)))

    running: dict[SideStream, Iterator[None]] = {}
    for step in range(session.steps):
        for _ in range(60):
            for side in sides:
                with side.scope():
                    if side not in running:
                        running[side] = request()
                    if next(running[side], running) is running:
                        del running[side]
        session.mark(f"step {step + 1}")


@dataclass
class Stage:
    """Layers of a model with their stream, and what they keep of each micro-batch."""

    layers: nn.Module
    side: SideStream
    cuts: deque[tuple[Tensor, Tensor]] = field(default_factory=deque)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output, on the stage's stream; x comes from the current stream's past."""
        self.side.after_main(x)
        with self.side.scope():
            given = x.detach().requires_grad_()
            with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
                made = self.layers(given)
            self.cuts.append((given, made))
            handed: Tensor = made.detach()
            return handed

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the oldest micro-batch's input."""
        self.side.after_main(gradient)
        with self.side.scope():
            given, made = self.cuts.popleft()
            made.backward(gradient)
            assert given.grad is not None  # noqa: S101 - for the type checker
            return given.grad


def hand_on(x: Tensor, stages: list[Stage], pass_on: Callable[[Stage, Tensor], Tensor]) -> Tensor:
    """Send a tensor through stages, each waiting for the one before it only."""
    before: Stage | None = None
    for stage in stages:
        if before is None:
            x = pass_on(stage, x)
        else:
            with before.side.scope():
                x = pass_on(stage, x)
        before = stage
    return x


def train_pipeline(session: Session, size: str, batch: int, stages: int) -> None:
    """Train in stages, each on its stream, one micro-batch forward and one backward in turn."""
    config = session.config(size)
    chain = []
    for _ in range(stages):
        side = SideStream(session.device)
        with session.device, side.scope():
            blocks = [Block(config) for _ in range(max(1, config.layers // stages))]
            chain.append(Stage(nn.Sequential(*blocks), side))
    parameters = [part for stage in chain for part in stage.layers.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, foreach=True)
    session.mark("model")
    for step in range(session.steps):
        waiting: deque[Tensor] = deque()
        for number in range(3 * stages):
            if number < 2 * stages:
                shape = (session.batch(batch), config.context, config.width)
                x = torch.randn(shape, device=session.device)
                waiting.append(torch.ones_like(hand_on(x, chain, Stage.forward)))
            if number >= stages:
                hand_on(waiting.popleft(), chain[::-1], Stage.backward)
        for stage in chain:
            stage.side.before_main()
        optimizer.step()
        for stage in chain:
            stage.side.after_main()  # before the gradients go, which are the stage's memory
        optimizer.zero_grad()
        session.mark(f"step {step + 1}")


def produce_and_consume(session: Session, depth: int, rounds: int) -> None:
    """One stream makes tensors of many sizes, another uses and drops them, a few behind."""
    producer, consumer = SideStream(session.device), SideStream(session.device)
    draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
    queue: deque[Tensor] = deque()
    session.mark("model")
    for step in range(session.steps):
        for _ in range(rounds):
            with producer.scope():
                raw = torch.empty(draw.randint(1 * MIB, 64 * MIB), device=session.device)
                queue.append(raw.mul_(2) + 1)
                del raw
                made = queue[0] if len(queue) == depth else None
                if made is not None:
                    consumer.after_main(made)
            if made is not None:
                queue.popleft()
                with consumer.scope():
                    kept = functional.relu(made)
                    del made
                    kept.add_(1)
                    del kept
        session.mark(f"step {step + 1}")


# ---- by name -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A program of several streams.

    run: the program, which may return losses. help: one line about it.
    limit_gib: memory that it may take at most; 0: the whole device.
    """

    run: Callable[[Session], list[Tensor] | None]
    help: str
    limit_gib: float = 0


SCENARIOS = {
    "wavelet": Scenario(
        partial(wavelet.train, batch=12), "two BERT-base trainings in turn, layer by layer"
    ),
    "wavelet-threads": Scenario(
        partial(wavelet.train_in_threads, batch=12), "the same, each in a thread of its own"
    ),
    "wavelet-varying": Scenario(
        partial(wavelet.train, batch=12, varies=True), "the same in turn, with varying lengths"
    ),
    "sharded": Scenario(
        partial(train_sharded, size="medium", batch=8),
        "GPT medium, parameters gathered and gradients reduced on two streams, as FSDP does",
    ),
    "buckets": Scenario(
        partial(train_in_buckets, size="small", batch=8),
        "GPT small, gradients averaged in buckets on a second stream, as DDP does",
    ),
    "serving": Scenario(
        partial(serve, size="medium", batch=16, workers=4),
        "GPT medium answers requests of many lengths on four streams",
    ),
    "pipeline": Scenario(
        partial(train_pipeline, size="medium", batch=4, stages=4),
        "GPT medium in four stages on four streams, one forward, one backward",
    ),
    "producer": Scenario(
        partial(produce_and_consume, depth=6, rounds=100),
        "one stream makes tensors of many sizes, another uses them",
    ),
    "prefetch": Scenario(
        partial(streams.train_prefetching, batch=64),
        "ResNet-34, a second stream copies and prepares the next pictures",
    ),
    "experts": Scenario(
        partial(streams.train_experts, size="medium", batch=8),
        "two branches on two streams, forward and backward",
    ),
    "offload": Scenario(
        partial(streams.train_offloading, size="small", batch=4),
        "GPT small, a second stream moves activations to the host and back",
    ),
    "storm": Scenario(
        partial(storm.run, rounds=1, seed=0), "random sizes on three streams", limit_gib=4
    ),
    "storm-2": Scenario(
        partial(storm.run, rounds=1, seed=1), "the same with other numbers", limit_gib=16
    ),
}
