"""BERT-Large learns to find answers in texts, in float32, with AdamW."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from transformers import BertConfig, BertForQuestionAnswering


def main() -> None:
    """Train on random tokens, padded to the longest text of their batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config = BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    model = BertForQuestionAnswering(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)

    for step in range(options.steps):
        lengths = torch.randint(128, 385, (options.batch,))
        longest = int(lengths.max())
        tokens = torch.randint(config.vocab_size, (options.batch, longest))
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


if __name__ == "__main__":
    main()
