"""BERT-Base learns to fill in masked words, in float16 with a GradScaler, with AdamW."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from torch.amp.grad_scaler import GradScaler
from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup


def main() -> None:
    """Train on random tokens, of which 15 in 100 are masked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = BertConfig()
    model = BertForMaskedLM(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    scheduler = get_linear_schedule_with_warmup(optimizer, 1, options.steps)
    scaler = GradScaler("cuda")

    model.train()
    for step in range(options.steps):
        tokens = torch.randint(config.vocab_size, (options.batch, 512))
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


if __name__ == "__main__":
    main()
