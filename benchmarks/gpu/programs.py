"""Programs whose steps never repeat: other lengths, shapes, or shares of the experts each time.

Weights are random, parameters in bfloat16 unless sharded, tokens random; nothing is learned. What
varies is drawn on the host from a seed, so that every run sees the same.
"""

# PyTorch and transformers are typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn import functional

from gpu.model import SIZES as TUNED_SIZES, Sizes, Tuned
from gpu.networks import ConvNet, Mixture, MixtureSizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn


class Program(Protocol):
    """Something that was built on the current device, and takes steps there."""

    def step(self, index: int) -> Tensor:
        """Take the step of that index, counted from 0; return its loss, still on the device."""


@dataclass(frozen=True)
class LlamaSizes:
    """Sizes of a Llama and of what it is trained on: `batch` sequences of 8 to `longest` tokens.

    pairs: heads of keys and values. inner: width of the feed-forward part.
    """

    layers: int
    width: int
    heads: int
    pairs: int
    inner: int
    vocab: int = 32_000
    batch: int = 4
    longest: int = 3072


# 1b: TinyLlama 1.1B (Zhang et al., "TinyLlama: An Open-Source Small Language Model", 2024).
LLAMAS = {
    "1b": LlamaSizes(layers=22, width=2048, heads=32, pairs=4, inner=5632),
    "2b": LlamaSizes(layers=24, width=2560, heads=20, pairs=4, inner=8960, batch=2),
    "3b": LlamaSizes(layers=34, width=2560, heads=20, pairs=4, inner=8960),
    "tiny": LlamaSizes(
        layers=2, width=64, heads=4, pairs=2, inner=160, vocab=512, batch=2, longest=256
    ),
}
MIXTURES = {
    "full": MixtureSizes(
        layers=12,
        width=1024,
        heads=16,
        experts=8,
        chosen=2,
        inner=2816,
        vocab=32_000,
        batch=4,
        tokens=2048,
    ),
    "tiny": MixtureSizes(
        layers=2, width=64, heads=4, experts=4, chosen=2, inner=128, vocab=512, batch=2, tokens=64
    ),
}


def lengths(steps: int, shortest: int, longest: int, seed: int = 2, multiple: int = 8) -> list[int]:
    """Return the tokens of each step's sequences: lognormal, whole multiples, no two the same.

    Where half of all lengths were used, they may come again. With the default seed the longest of
    60 steps is among the first third.
    """
    draw = random.Random(seed)  # noqa: S311 - no secret, only repeatable
    used: set[int] = set()
    drawn: list[int] = []
    while len(drawn) < steps:
        length = multiple * round(draw.lognormvariate(math.log(longest * 0.3), 0.75) / multiple)
        if not shortest <= length <= longest or length in used:
            continue
        used.add(length)
        drawn.append(length)
        if len(used) > (longest - shortest) // (2 * multiple):
            used.clear()
    return drawn


@contextmanager
def parameters_in(dtype: torch.dtype) -> Iterator[None]:
    """Let what is built inside have its floating-point parameters in that type, on the device."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            yield
    finally:
        torch.set_default_dtype(before)


def make_llama(sizes: LlamaSizes, dtype: torch.dtype = torch.bfloat16) -> Any:  # noqa: ANN401
    """Return a LlamaForCausalLM of transformers with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=sizes.vocab,
        hidden_size=sizes.width,
        intermediate_size=sizes.inner,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.pairs,
        max_position_embeddings=4096,
        use_cache=False,
    )
    with parameters_in(dtype):
        return LlamaForCausalLM(config)


class Training:
    """What trainings share: a fused AdamW on all that is trained."""

    def __init__(self, model: nn.Module) -> None:
        """Make the optimizer; its states come with the first step."""
        trained = [part for part in model.parameters() if part.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)

    def update(self, loss: Tensor) -> Tensor:
        """Train on one loss, and return it."""
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


class LlamaTraining(Training):
    """All parameters of a Llama are trained on sequences of another length in each step."""

    def __init__(self, sizes: LlamaSizes, steps: int, *, has_checkpoints: bool = False) -> None:
        """Make the model on the device."""
        self.sizes = sizes
        self.lengths = lengths(steps, sizes.longest // 24, sizes.longest)
        self.model = make_llama(sizes)
        if has_checkpoints:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        super().__init__(self.model)

    def step(self, index: int) -> Tensor:
        """Train on one batch."""
        shape = (self.sizes.batch, self.lengths[index])
        tokens = torch.randint(self.sizes.vocab, shape, device="cuda")
        loss: Tensor = self.model(input_ids=tokens, labels=tokens).loss
        return self.update(loss)


class ShardedTraining(Training):
    """A Llama that is divided among processes; each has lengths of its own.

    Parameters are kept in float32, computed with in bfloat16; gradients are added in float32.
    """

    def __init__(self, sizes: LlamaSizes, steps: int) -> None:
        """Make this process's share of the model. pre: the processes have found each other."""
        from torch import distributed
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        self.sizes = sizes
        rank = distributed.get_rank()
        torch.manual_seed(rank)
        self.lengths = lengths(steps, sizes.longest // 24, sizes.longest, seed=2 + rank)
        self.model = make_llama(replace(sizes, layers=0), torch.float32)
        how = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        whole = self._layers(sizes)
        for number, layer in enumerate(whole):
            layer.self_attn.layer_idx = number
            self.model.model.layers.append(fully_shard(layer, mp_policy=how))
        self.model.config.num_hidden_layers = sizes.layers
        fully_shard(self.model, mp_policy=how)
        super().__init__(self.model)

    @staticmethod
    def _layers(sizes: LlamaSizes) -> Iterator[Any]:
        """Make one layer after the other, so that a device holds only one of them whole."""
        for _ in range(sizes.layers):
            yield make_llama(replace(sizes, layers=1, vocab=8), torch.float32).model.layers[0]

    def step(self, index: int) -> Tensor:
        """Train on one batch."""
        shape = (self.sizes.batch, self.lengths[index])
        tokens = torch.randint(self.sizes.vocab, shape, device="cuda")
        loss: Tensor = self.model(input_ids=tokens, labels=tokens).loss
        return self.update(loss)


class Tuning(Training):
    """Adapters of a Llama are trained, with every layer computed twice."""

    def __init__(self, sizes: Sizes, batch: int, steps: int) -> None:
        """Make the model on the device."""
        self.sizes, self.batch = sizes, batch
        self.lengths = lengths(steps, sizes.longest // 16, sizes.longest)
        with torch.device("cuda"):
            self.model = Tuned(sizes)
        super().__init__(self.model)

    def step(self, index: int) -> Tensor:
        """Train on one batch."""
        shape = (self.batch, self.lengths[index] + 1)
        return self.update(self.model.loss(torch.randint(self.sizes.vocab, shape, device="cuda")))


class MixtureTraining(Training):
    """A mixture of experts, whose shares of the tokens differ in each layer and step."""

    def __init__(self, sizes: MixtureSizes) -> None:
        """Make the model on the device."""
        self.sizes = sizes
        self.draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
        with parameters_in(torch.bfloat16):
            self.model = Mixture(sizes)
        super().__init__(self.model)

    def step(self, index: int) -> Tensor:  # noqa: ARG002 (steps come in order)
        """Train on one batch."""
        shape = (self.sizes.batch, self.sizes.tokens + 1)
        tokens = torch.randint(self.sizes.vocab, shape, device="cuda")
        return self.update(self.model.loss(tokens, self.draw))


class ConvolutionTraining(Training):
    """Pictures of another height and width in each step, about as many pixels in all."""

    def __init__(self, depths: tuple[int, ...], sides: range, pixels: int, steps: int) -> None:
        """Make the model on the device. `pixels`: of one batch at most."""
        draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
        every = [(height, width) for height in sides for width in sides]
        self.shapes: list[tuple[int, int]] = []
        while len(self.shapes) < steps:
            self.shapes += draw.sample(every, len(every))
        self.pixels = pixels
        with parameters_in(torch.bfloat16):
            model = ConvNet(depths)
        self.model: nn.Module = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        super().__init__(self.model)

    def step(self, index: int) -> Tensor:
        """Train on one batch."""
        height, width = self.shapes[index]
        batch = max(1, self.pixels // (height * width))
        shape = (batch, 3, height, width)
        pictures = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        pictures = pictures.to(memory_format=torch.channels_last)
        labels = torch.randint(1000, (batch,), device="cuda")
        return self.update(functional.cross_entropy(self.model(pictures).float(), labels))


class Requests:
    """Texts that are continued together, each by a number of tokens of its own.

    Keys and values of all tokens so far are joined with those of the newest in each step.
    """

    def __init__(self, model: Any, prompt: Tensor, counts: list[int]) -> None:  # noqa: ANN401
        """Begin with texts [batch, length]; counts[i] tokens are wanted of the i-th."""
        from transformers import DynamicCache

        self.model, self.fresh, self.counts = model, prompt, counts
        self.cache = DynamicCache()

    def step(self) -> Tensor:
        """Add a token to each, and drop those that have all they want; return the scores."""
        told = self.model(
            input_ids=self.fresh, past_key_values=self.cache, use_cache=True, logits_to_keep=1
        )
        scores: Tensor = told.logits[:, -1]
        self.fresh = scores.argmax(dim=-1, keepdim=True)
        self.counts = [count - 1 for count in self.counts]
        kept = [place for place, count in enumerate(self.counts) if count > 0]
        if kept and len(kept) < len(self.counts):
            rows = torch.tensor(kept, device="cuda")
            self.cache.batch_select_indices(rows)
            self.fresh = self.fresh[rows]
        self.counts = [count for count in self.counts if count > 0]
        return scores


class Generating:
    """Three batches of requests are served in turn; where one has ended, another begins.

    A step is one token of each request. The loss is the sum of the scores.
    """

    def __init__(self, sizes: LlamaSizes, batch: int) -> None:
        """Make the model on the device. `batch`: requests that begin together at most."""
        self.sizes, self.batch = sizes, batch
        self.draw = random.Random(0)  # noqa: S311 - no secret, only repeatable
        self.model = make_llama(sizes).eval()
        self.served: list[Requests | None] = [None] * 3

    def _begin(self) -> Requests:
        batch = self.draw.randint(max(1, self.batch // 2), self.batch)
        shape = (batch, self.draw.randint(self.sizes.longest // 48, self.sizes.longest // 2))
        prompt = torch.randint(self.sizes.vocab, shape, device="cuda")
        counts = [self.draw.randint(self.sizes.longest // 96, 128) for _ in range(batch)]
        return Requests(self.model, prompt, counts)

    @torch.no_grad()
    def step(self, index: int) -> Tensor:  # noqa: ARG002 (steps come in order)
        """Add a token to every request."""
        total = torch.zeros((), device="cuda")
        for place, requests in enumerate(self.served):
            served = requests or self._begin()
            total += served.step().float().sum()
            self.served[place] = served if served.counts else None
        return total


def _llama(size: str, *, has_checkpoints: bool, batch: int = 0) -> Callable[[bool, int], Program]:
    def make(is_tiny: bool, steps: int) -> Program:  # noqa: FBT001 (called by `build` only)
        sizes = LLAMAS["tiny" if is_tiny else size]
        sizes = replace(sizes, batch=batch) if batch and not is_tiny else sizes
        return LlamaTraining(sizes, steps, has_checkpoints=has_checkpoints)

    return make


def _tuning(is_tiny: bool, steps: int) -> Program:  # noqa: FBT001
    return Tuning(TUNED_SIZES["tiny" if is_tiny else "1b"], 2 if is_tiny else 16, steps)


def _mixture(is_tiny: bool, steps: int) -> Program:  # noqa: ARG001, FBT001
    return MixtureTraining(MIXTURES["tiny" if is_tiny else "full"])


def _convolutions(is_tiny: bool, steps: int) -> Program:  # noqa: FBT001
    if is_tiny:
        return ConvolutionTraining((1, 1, 1, 1), range(32, 129, 32), 2 * 128 * 128, steps)
    return ConvolutionTraining((3, 4, 6, 3), range(160, 513, 32), 128 * 256 * 256, steps)


def _generating(is_tiny: bool, steps: int) -> Program:  # noqa: ARG001, FBT001
    return Generating(LLAMAS["tiny" if is_tiny else "1b"], 4 if is_tiny else 64)


def _sharded(is_tiny: bool, steps: int) -> Program:  # noqa: FBT001
    return ShardedTraining(LLAMAS["tiny" if is_tiny else "2b"], steps)


MAKERS: dict[str, Callable[[bool, int], Program]] = {
    "llama-1b": _llama("1b", has_checkpoints=False),
    "llama-1b-checkpoint": _llama("1b", has_checkpoints=True),
    "llama-3b": _llama("3b", has_checkpoints=False, batch=2),
    "llama-3b-checkpoint": _llama("3b", has_checkpoints=True),
    "lora": _tuning,
    "moe": _mixture,
    "convnet": _convolutions,
    "generate": _generating,
    "fsdp2": _sharded,
}


def build(name: str, size: str, steps: int) -> Program:
    """Make a program on the current device. `size`: "full" or "tiny"."""
    torch.manual_seed(0)
    return MAKERS[name](size == "tiny", steps)
