"""GMLake's jobs: language models of transformers are tuned, divided among ranks as by ZeRO-3.

FSDP2 gathers each layer's parameters before it is computed, frees them behind it, and divides the
gradients. Parameters are in bfloat16, with masters and moments in float32 of what is trained.
"""

# PyTorch and transformers are typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any
# mypy: disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu.programs import lengths, parameters_in
from papers.masters import Host, Masters

if TYPE_CHECKING:
    from collections.abc import Callable

    from papers.jobs import Job, Shape

ADAPTER_RANK = 128
"""Of DeepSpeed-Chat's recipes for models of this size."""

_LONGEST_AT = 2
"""The step whose sequences are the longest."""


class Adapter(nn.Module):
    """A frozen linear layer, and a trained low-rank addition to it."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        """Make the addition on the default device, in the default type."""
        super().__init__()
        self.frozen = frozen.requires_grad_(False)  # noqa: FBT003 (its own signature)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) * frozen.in_features**-0.5)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        low = functional.linear(functional.linear(x, self.down), self.up)
        out: Tensor = self.frozen(x) + low
        return out


def adapt(layer: nn.Module, rank: int) -> None:
    """Freeze a layer, and give each linear layer in it an adapter."""
    layer.requires_grad_(False)  # noqa: FBT003 (its own signature)
    for module in list(layer.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and not isinstance(module, Adapter):
                setattr(module, name, Adapter(child, rank))


def _opt(shape: Shape) -> tuple[Any, Any, Callable[[int], Any]]:
    from transformers.models.opt import modeling_opt as opt

    config = opt.OPTConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        word_embed_proj_dim=shape.width,
        ffn_dim=shape.inner,
        num_hidden_layers=0,
        num_attention_heads=shape.heads,
        max_position_embeddings=2048,
        use_cache=False,
    )
    model = opt.OPTForCausalLM(config)
    return model, model.model.decoder.layers, lambda number: opt.OPTDecoderLayer(config, number)


def _llama(shape: Shape) -> tuple[Any, Any, Callable[[int], Any]]:
    from transformers.models.llama import modeling_llama as llama

    config = llama.LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=0,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.pairs,
        max_position_embeddings=4096,
        use_cache=False,
    )
    model = llama.LlamaForCausalLM(config)
    return model, model.model.layers, lambda number: llama.LlamaDecoderLayer(config, number)


def _neox(shape: Shape) -> tuple[Any, Any, Callable[[int], Any]]:
    from transformers.models.gpt_neox import modeling_gpt_neox as neox

    config = neox.GPTNeoXConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=0,
        num_attention_heads=shape.heads,
        max_position_embeddings=2048,
        use_cache=False,
    )
    model = neox.GPTNeoXForCausalLM(config)
    return model, model.gpt_neox.layers, lambda number: neox.GPTNeoXLayer(config, number)


_MAKERS = {"opt": _opt, "llama": _llama, "neox": _neox}


class Tuning:
    """A training whose batches have sequences of another length in each step."""

    def __init__(self, job: Job, shape: Shape) -> None:
        """Make rank 0's share on the device, one layer after the other."""
        from torch import distributed
        from torch.distributed.fsdp import fully_shard
        from torch.testing._internal.distributed.fake_pg import FakeStore

        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=job.ranks)
        self.job, self.shape = job, shape
        self.lengths = lengths(job.steps, shape.longest // 8, shape.longest)
        self.lengths[min(_LONGEST_AT, job.steps - 1)] = shape.longest
        with parameters_in(torch.bfloat16):
            self.model, layers, make = _MAKERS[shape.kind](shape)
            if "L" in job.strategy:
                self.model.requires_grad_(False)  # noqa: FBT003 (its own signature)
            for number in range(shape.layers):
                layer = make(number)
                if "L" in job.strategy:
                    adapt(layer, min(ADAPTER_RANK, shape.width // 4))
                layers.append(fully_shard(layer))
        self.model.config.num_hidden_layers = shape.layers
        fully_shard(self.model)
        if "R" in job.strategy:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.train()
        units = [*layers, self.model]
        taken: set[int] = set()
        self.units: list[list[Any]] = []
        for unit in units:
            fresh = [one for one in unit.parameters() if one.requires_grad and id(one) not in taken]
            taken.update(id(one) for one in fresh)
            self.units += [fresh] if fresh else []
        self.host = Host() if "O" in job.strategy else None
        self.masters: list[Masters] = []
        if self.host:
            for parameter in self.trained:
                parameter.register_post_accumulate_grad_hook(self._takes_to(self.host))
        else:
            self.masters = [Masters([one.to_local() for one in unit]) for unit in self.units]

    @property
    def trained(self) -> list[Any]:
        """Parameters, divided among the ranks, that are trained."""
        return [parameter for unit in self.units for parameter in unit]

    @staticmethod
    def _takes_to(host: Host) -> Callable[[Any], None]:
        def take(parameter: Any) -> None:  # noqa: ANN401
            host.take(parameter.grad.to_local())
            parameter.grad = None

        return take

    def step(self, index: int) -> Tensor:
        """Train on one batch."""
        shape = (self.job.batch, self.lengths[index])
        tokens = torch.randint(self.shape.vocab, shape, device="cuda")
        loss: Tensor = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        if self.host:
            self.host.give([parameter.to_local() for parameter in self.trained])
        for unit, masters in zip(self.units, self.masters, strict=False):
            masters.step([parameter.grad.to_local() for parameter in unit])
            for parameter in unit:
                parameter.grad = None
        return loss.detach()
