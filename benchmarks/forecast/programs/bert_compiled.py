"""A BERT of six layers sorts texts into classes, compiled, in bfloat16, with SGD."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=6, num_labels=4)
    model = BertForSequenceClassification(config).cuda()
    model.compile()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    model.train()
    for step in range(options.steps):
        tokens = torch.randint(config.vocab_size, (options.batch, 256), device="cuda")
        labels = torch.randint(4, (options.batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
