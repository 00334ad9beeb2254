"""TRL's SFTTrainer: texts of random length, padded to the longest of each batch."""

# Every package here may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

from others.made import LLAMA, LONGEST, STEPS, texts, write_tokenizer


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        SFTTrainer(
            model=LlamaForCausalLM(LlamaConfig(**LLAMA)).to(torch.bfloat16),
            args=SFTConfig(
                output_dir=folder,
                max_steps=STEPS,
                per_device_train_batch_size=4,
                max_length=LONGEST,
                report_to=[],
                save_strategy="no",
                bf16=False,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list([{"text": text} for text in texts(4 * STEPS)]),
            processing_class=tokenizer,
        ).train()


if __name__ == "__main__":
    main()
