"""LoRA with peft under gmlake: a frozen model, adapters that are trained on texts of any length.

gmlake run --report examples/howto/lora.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import random

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=500,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
)


def main() -> None:
    """Train the adapters for some steps."""
    lengths = random.Random(0)  # noqa: S311 (no secret)
    with torch.device("cuda"):
        base = LlamaForCausalLM(CONFIG)
    model = get_peft_model(
        base, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    for _ in range(10):
        shape = 4, lengths.randint(32, 256)
        texts = torch.ones(shape, dtype=torch.long, device="cuda")
        model(input_ids=texts, labels=texts).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    live, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    print(f"at the peak: {live >> 20} MiB live, {reserved >> 20} MiB reserved")


if __name__ == "__main__":
    main()
