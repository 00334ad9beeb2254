"""Trainings of language models, each as somebody might write it: python language.py NAME."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import argparse
import math
import random

import torch
import transformers
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional
from transformers.optimization import Adafactor

LLAMA_1B = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "use_cache": False,
}


class Adapted(nn.Module):
    """A frozen linear layer, and a trained one of low rank that is added to it."""

    def __init__(self, base: nn.Linear, rank: int = 16, scale: float = 2.0) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False, device="cuda")
        self.up = nn.Linear(rank, base.out_features, bias=False, device="cuda")
        self.dropout = nn.Dropout(0.05)
        self.scale = scale
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)

    def forward(self, given: Tensor) -> Tensor:
        added = self.up(self.down(self.dropout(given).float()))
        result: Tensor = self.base(given) + (added * self.scale).to(given.dtype)
        return result


def bert_compiled(batch: int = 128, steps: int = 6) -> None:
    """A BERT of six layers sorts texts into classes, compiled, in bfloat16, with SGD."""
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=6, num_labels=4)
    model = transformers.BertForSequenceClassification(config).cuda()
    model.compile()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    model.train()
    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 256), device="cuda")
        labels = torch.randint(4, (batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


def bert_large_answers(batch: int = 24, steps: int = 6) -> None:
    """BERT-Large learns to find answers in texts, in float32, with AdamW."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    model = transformers.BertForQuestionAnswering(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)

    for step in range(steps):
        lengths = torch.randint(128, 385, (batch,))
        longest = int(lengths.max())
        tokens = torch.randint(config.vocab_size, (batch, longest))
        mask = (torch.arange(longest) < lengths[:, None]).long()
        loss = model(
            input_ids=tokens.cuda(),
            attention_mask=mask.cuda(),
            token_type_ids=torch.zeros_like(tokens).cuda(),
            start_positions=(lengths - 8).cuda(),
            end_positions=(lengths - 2).cuda(),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: {longest} tokens, loss {loss.item():.4f}")


def bert_mlm(batch: int = 64, steps: int = 6) -> None:
    """BERT-Base learns to fill in masked words, in float16 with a GradScaler, with AdamW."""
    torch.manual_seed(0)
    config = transformers.BertConfig()
    model = transformers.BertForMaskedLM(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 1, steps)
    scaler = GradScaler("cuda")

    model.train()
    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 512))
        is_masked = torch.rand(tokens.shape) < 0.15  # noqa: PLR2004
        labels = tokens.masked_fill(~is_masked, -100).cuda()
        tokens = tokens.masked_fill(is_masked, 103).cuda()
        with torch.autocast("cuda", torch.float16):
            loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        print(f"step {step}: loss {loss.item():.4f}")


def distilgpt2(batch: int = 32, steps: int = 6) -> None:
    """DistilGPT-2 in float16 with a GradScaler, with Adam."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=6)
    model = transformers.GPT2LMHeadModel(config).to("cuda").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    scaler = GradScaler("cuda")

    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 512), device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = model(input_ids=tokens, labels=tokens).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step}: loss {loss.item():.4f}, scale {scaler.get_scale():.0f}")


def gpt2_compiled(batch: int = 16, steps: int = 6) -> None:
    """GPT-2 compiled, in bfloat16, with a fused AdamW."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config = transformers.GPT2Config(n_layer=6, use_cache=False)
    model = transformers.GPT2LMHeadModel(config).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)

    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 1025), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = compiled(input_ids=tokens[:, :-1]).logits
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


def gpt2_medium_checkpointing(batch: int = 16, steps: int = 4, accumulate: int = 2) -> None:
    """GPT-2 Medium in bfloat16 with gradient checkpointing, AdamW, two batches to an update."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)
    with torch.device("cuda"):
        model = transformers.GPT2LMHeadModel(config)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    decayed = [part for part in model.parameters() if part.dim() >= 2]  # noqa: PLR2004
    others = [part for part in model.parameters() if part.dim() < 2]  # noqa: PLR2004
    groups = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95))

    for step in range(steps):
        total = 0.0
        for _ in range(accumulate):
            tokens = torch.randint(config.vocab_size, (batch, 1024)).cuda()
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss / accumulate
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {total:.4f}")


def llama_1b(batch: int = 8, steps: int = 5, length: int = 2048) -> None:
    """A Llama of 1.2 billion parameters, weights and states in bfloat16, with a fused AdamW."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**LLAMA_1B)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)

    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, length), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


def llama_1b_checkpointing(batch: int = 8, steps: int = 4) -> None:
    """A Llama of 1.1 billion parameters in float32 and bfloat16, with gradient checkpointing."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(  # TinyLlama's
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=0.1)

    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 2048), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


def llama_1b_lora(batch: int = 4, steps: int = 6) -> None:
    """Adapters of low rank (LoRA) for a Llama of 1.2 billion frozen parameters in bfloat16."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**LLAMA_1B)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.requires_grad_(requires_grad=False)
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))
    trained = [part for part in model.parameters() if part.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4)

    model.train()
    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 1024), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


def opt_350m(batch: int = 8, steps: int = 6) -> None:
    """OPT-350M, weights and states in bfloat16, with AdamW."""
    torch.manual_seed(0)
    config = transformers.OPTConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        ffn_dim=4096,
        word_embed_proj_dim=512,
        do_layer_norm_before=False,
    )
    with torch.device("cuda"):
        model = transformers.OPTForCausalLM(config).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    model.train()
    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 2048), device="cuda")
        mask = torch.ones_like(tokens)
        loss = model(input_ids=tokens, attention_mask=mask, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


def pythia_410m(batch: int = 8, steps: int = 6) -> None:
    """Pythia-410M (GPT-NeoX) in bfloat16, with a fused AdamW."""
    torch.manual_seed(0)
    config = transformers.GPTNeoXConfig(
        vocab_size=50304,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=2048,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = transformers.GPTNeoXForCausalLM(config)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )

    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 2048), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


def qwen2_500m(batch: int = 4, steps: int = 4, accumulate: int = 4) -> None:
    """Qwen2-0.5B in bfloat16, texts of varying lengths, four batches to an update of AdamW."""
    torch.manual_seed(0)
    draw = random.Random(0)  # noqa: S311
    config = transformers.Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = transformers.Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulate):
            shape = (batch, draw.randint(256, 1536))
            tokens = torch.randint(config.vocab_size, shape, device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss / accumulate
            loss.backward()
        optimizer.step()
        print(f"step {step}: {shape[1]} tokens, loss {loss.item():.4f}")


def qwen3_600m(batch: int = 8, steps: int = 5) -> None:
    """Qwen3-0.6B, weights in bfloat16, with PyTorch's Adafactor and gradient checkpointing."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-3)

    model.train()
    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 2048), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


def qwen3_experts(batch: int = 8, steps: int = 6) -> None:
    """A mixture of 16 experts (Qwen3-MoE), of which four serve a token, in bfloat16, with AdamW."""
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=50304,
        hidden_size=1024,
        moe_intermediate_size=768,
        num_experts=16,
        num_experts_per_tok=4,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=64,
        use_cache=False,
        experts_implementation="grouped_mm",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.Qwen3MoeForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, fused=True)

    for step in range(steps):
        tokens = torch.randint(config.vocab_size, (batch, 1024), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


def t5(batch: int = 32, steps: int = 6) -> None:
    """T5-Base in bfloat16, with Adafactor and texts of varying lengths."""
    torch.manual_seed(0)
    draw = random.Random(0)  # noqa: S311
    config = transformers.T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0
    )
    with torch.device("cuda"):
        model = transformers.T5ForConditionalGeneration(config)
    optimizer = Adafactor(
        model.parameters(), lr=1e-3, scale_parameter=False, relative_step=False, warmup_init=False
    )

    model.train()
    for step in range(steps):
        lengths = [draw.randint(100, 512) for _ in range(batch)]
        source = torch.randint(config.vocab_size, (batch, max(lengths)))
        mask = torch.zeros_like(source)
        for row, length in enumerate(lengths):
            mask[row, :length] = 1
        target = torch.randint(config.vocab_size, (batch, draw.randint(64, 128)))
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(
                input_ids=source.cuda(), attention_mask=mask.cuda(), labels=target.cuda()
            ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {source.shape[1]} tokens, loss {loss.item():.4f}")


PROGRAMS = (
    bert_compiled,
    bert_large_answers,
    bert_mlm,
    distilgpt2,
    gpt2_compiled,
    gpt2_medium_checkpointing,
    llama_1b,
    llama_1b_checkpointing,
    llama_1b_lora,
    opt_350m,
    pythia_410m,
    qwen2_500m,
    qwen3_600m,
    qwen3_experts,
    t5,
)


def main() -> None:
    """Run one of them."""
    named = {program.__name__: program for program in PROGRAMS}
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=named)
    parser.add_argument("--batch", type=int, default=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=argparse.SUPPRESS)
    options = vars(parser.parse_args())
    named[options.pop("program")](**options)


if __name__ == "__main__":
    main()
