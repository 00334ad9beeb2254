"""transformers' Trainer under gmlake, with memory in its logs and a page at the end.

gmlake run examples/howto/hf_trainer.py
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from gmlake.integrations.transformers import GmlakeCallback

VOCABULARY = 500
LENGTH = 64
CONFIG = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
)


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Rows of tokens, the labels the same."""

    def __len__(self) -> int:
        """Return how many rows there are."""
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return a row."""
        row = torch.arange(LENGTH) * (index + 7) % VOCABULARY
        return {"input_ids": row, "labels": row}


def main() -> None:
    """Train with accumulated gradients, and evaluate in between."""
    arguments = TrainingArguments(
        output_dir="trained",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=8,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="no",
        report_to="none",  # or "tensorboard", "wandb": they get the lines, too
    )
    trainer = Trainer(
        LlamaForCausalLM(CONFIG),
        arguments,
        train_dataset=Tokens(),
        eval_dataset=Tokens(),
        callbacks=[GmlakeCallback(page="memory.html")],
    )
    trainer.train()


if __name__ == "__main__":
    main()
