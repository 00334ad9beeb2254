"""Megatron-core's GPT, every layer computed twice; sequences have another length in each step."""

# Every package here may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

from others.made import (
    LLAMA,
    LONGEST,
    backend,
    begin,
    drawn_lengths,
    losses,
    tokens,
)


def main() -> None:
    """Train."""
    begin()
    dist.init_process_group(backend())
    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(0)
    config = TransformerConfig(
        num_layers=LLAMA["num_hidden_layers"],
        hidden_size=LLAMA["hidden_size"],
        num_attention_heads=LLAMA["num_attention_heads"],
        use_cpu_initialization=True,
        bf16=True,
        params_dtype=torch.bfloat16,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    )
    model = GPTModel(config, get_gpt_layer_local_spec(), LLAMA["vocab_size"], LONGEST)
    model.bfloat16().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in drawn_lengths():
        ids = tokens(length)
        places = torch.arange(length, device="cuda").repeat(2, 1)
        later = torch.ones(1, 1, length, length, dtype=torch.bool, device="cuda").triu(1)
        loss = model(ids, places, later, labels=ids).mean()
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
