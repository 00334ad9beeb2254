"""Megatron-core under gmlake: a GPT whose layers are divided among the processes.

gmlake run --report -m torch.distributed.run --nproc-per-node 2 examples/howto/megatron_gpt.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

BACKEND = os.environ.get("BACKEND", "nccl")  # gloo where there is no NCCL


def main() -> None:
    """Train on sequences of varying length, with tensors parallel over all processes."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(BACKEND)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    model_parallel_cuda_manual_seed(0)

    config = TransformerConfig(
        num_layers=2, hidden_size=256, num_attention_heads=4, use_cpu_initialization=True
    )
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=512, max_sequence_length=256)
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(6):
        length = 64 * (1 + step % 3)
        tokens = torch.ones(4, length, dtype=torch.long, device="cuda")
        places = torch.arange(length, device="cuda").repeat(4, 1)
        later = torch.ones(1, 1, length, length, dtype=torch.bool, device="cuda").triu(1)
        model(tokens, places, later, labels=tokens).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
