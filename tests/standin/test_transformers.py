"""Models of the transformers library with random weights, and LoRA with peft."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.standin.accounting import tensor_bytes
from tests.standin.training import memory_calls

from gmlake.standin import control

transformers = pytest.importorskip("transformers")

# Newer versions have other names for it; those used here are understood by all versions.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w+` is deprecated:FutureWarning")
SIZES = {"vocab_size": 500, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
GPT2 = {"vocab_size": 500, "n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 256}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "GPT2": GPT2,
    "Llama": SIZES | {"intermediate_size": 256, "num_key_value_heads": 2},
}


def model_of(name: str) -> Any:
    """Return a causal language model on the device."""
    config = getattr(transformers, f"{name}Config")(**CONFIGURATIONS[name])
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config)


def train(model: Any, optimizer: Any) -> None:
    """Train for one step on one batch of tokens."""
    tokens = torch.randint(500, (4, 64), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_model_trains_without_keeping_memory(name: str) -> None:
    model = model_of(name)
    assert torch.cuda.memory_allocated() >= tensor_bytes(model.parameters())
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    train(model, optimizer)
    allocated = torch.cuda.memory_allocated()
    control.reset_calls()
    train(model, optimizer)
    assert torch.cuda.memory_allocated() == allocated
    assert memory_calls(control.calls()) == {}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_checkpoints_lower_the_peak(name: str) -> None:
    model = model_of(name)
    model.train()
    optimizer = torch.optim.SGD(model.parameters())

    def peak() -> int:
        train(model, optimizer)
        torch.cuda.reset_peak_memory_stats()
        train(model, optimizer)
        found: int = torch.cuda.max_memory_allocated()
        return found

    whole = peak()
    model.gradient_checkpointing_enable()
    assert peak() < whole


class TooLongError(Exception):
    """A model was asked for more tokens than it should have been."""


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_generating_token_by_token_grows_a_cache(name: str) -> None:
    model = model_of(name).eval()
    tokens = torch.ones(2, 8, dtype=torch.long, device="cuda")
    cache = transformers.DynamicCache()
    sizes = []
    with torch.inference_mode():
        for _ in range(12):
            logits = model(input_ids=tokens, past_key_values=cache, use_cache=True).logits
            tokens = logits[:, -1:].argmax(-1)
            del logits
            sizes.append(torch.cuda.memory_allocated())
    assert cache.get_seq_length() == 8 + 11
    assert tokens.shape == (2, 1)
    # A token more for keys and values of each layer, in blocks of 512 bytes.
    assert sizes[-1] > sizes[1]
    del cache
    assert torch.cuda.memory_allocated() < sizes[1]


def test_generate_never_sees_that_it_is_done() -> None:
    """It waits for a condition that kernels compute: here it is false for ever."""
    model = model_of("Llama").eval()
    prompt = torch.ones(1, 8, dtype=torch.long, device="cuda")

    def is_done(tokens: torch.Tensor, _scores: torch.Tensor, **_: Any) -> torch.Tensor:
        if tokens.shape[1] > 30:
            raise TooLongError
        return torch.zeros(1, dtype=torch.bool, device="cuda")

    with pytest.raises(TooLongError):
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=0,
            stopping_criteria=transformers.StoppingCriteriaList([is_done]),
        )


def test_lora_keeps_states_for_its_adapters_alone() -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        model_of("Llama"),
        peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(adapters) == 3 * 2 * 2
    optimizer = torch.optim.AdamW(adapters)
    before = torch.cuda.memory_allocated()
    train(model, optimizer)
    train(model, optimizer)
    allocated = torch.cuda.memory_allocated()
    train(model, optimizer)
    assert torch.cuda.memory_allocated() == allocated
    # cuBLAS's workspaces come on top of the states.
    workspaces = allocated - before - 2 * tensor_bytes(adapters)
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 (its only name)
    assert torch.cuda.memory_allocated() == allocated - workspaces
