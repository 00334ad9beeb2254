"""DeepSpeed's ZeRO-3 with its defaults; a Llama's sequences have another length in each step."""

# Every package here may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from others.made import LLAMA, backend, begin, drawn_lengths, losses, tokens


def main() -> None:
    """Train."""
    begin()
    deepspeed.init_distributed(dist_backend=backend())
    model = LlamaForCausalLM(LlamaConfig(**LLAMA))
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=list(model.parameters()),
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 3},
            "zero_allow_untested_optimizer": True,
        },
    )
    for length in drawn_lengths():
        ids = tokens(length)
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        losses.append(loss.detach())
        engine.step()


if __name__ == "__main__":
    main()
