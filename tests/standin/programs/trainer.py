"""A Hugging Face Trainer on a tiny model, as anybody writes it; prints what it logged as JSON.

Argument: a folder to write to.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

ROWS, LENGTH, VOCABULARY = 64, 64, 500


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Rows of tokens of varying length, one after the other in no order."""

    def __len__(self) -> int:
        """Return how many rows there are."""
        return ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return a row and the labels that it is trained towards."""
        row = torch.arange(LENGTH - 8 * (index // 8 % 4)) * (index + 7) % VOCABULARY
        return {"input_ids": row, "labels": row}


def main() -> None:
    """Train, evaluate, save, and print."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    arguments = TrainingArguments(
        output_dir=sys.argv[1],
        per_device_train_batch_size=8,
        max_steps=8,
        logging_steps=2,
        save_steps=8,
        gradient_checkpointing=True,
        bf16=True,
        train_sampling_strategy="sequential",
        skip_memory_metrics=False,
        report_to=[],
    )
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=Tokens())
    output = trainer.train()
    trainer.evaluate(Tokens())
    results: dict[str, Any] = {
        "backend": torch.cuda.get_allocator_backend(),
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "metrics": output.metrics,
        "steps": trainer.state.global_step,
        "stats": torch.cuda.memory_stats(),
    }
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
