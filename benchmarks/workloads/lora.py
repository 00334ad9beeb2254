"""A workload that tunes a language model of `transformers` with LoRA from `peft`."""

# These packages are typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from workloads.gpt import lengths

if TYPE_CHECKING:
    from workloads.session import Session


def make_model(session: Session) -> Any:  # noqa: ANN401 - a type of peft
    """Return a Llama of 1.2 billion parameters (the sizes of Llama 3.2 1B) with adapters."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    scale = session.scale
    width = min(2048, scale.width)
    config = LlamaConfig(
        vocab_size=min(128_256, scale.vocab),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=min(16, scale.layers),
        num_attention_heads=min(32, width // 16),
        num_key_value_heads=min(8, width // 16),
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        use_cache=False,
    )
    with session.device:
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=targets))


def tune(session: Session, batch: int) -> None:
    """Train the adapters on texts of varying length, with gradient checkpointing."""
    model = make_model(session)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=True)
    session.mark("model")
    vocabulary = min(128_256, session.scale.vocab)
    for step, length in enumerate(lengths(session.steps, min(2048, session.scale.tokens))):
        tokens = torch.randint(vocabulary, (session.batch(batch), length), device=session.device)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        session.mark(f"step {step + 1}, {length} tokens")
