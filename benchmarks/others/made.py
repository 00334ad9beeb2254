"""Sizes, sequences and a tokenizer that the programs of this folder share."""

# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

STEPS = 12
LONGEST = 2048
WORDS = 8000
LLAMA: dict[str, Any] = {
    "vocab_size": 8192,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
}

told: dict[str, Any] = {}
"""What a program says of itself beside its peaks, or in place of them; peaks.py prints it."""


def drawn_lengths() -> list[int]:
    """Return tokens of a sequence for each step, multiples of 8."""
    chance = random.Random(0)  # noqa: S311 (no secret)
    return [8 * chance.randrange(8, LONGEST // 8 + 1) for _ in range(STEPS)]


def tokens(length: int, sequences: int = 2) -> Tensor:
    """Return sequences of random tokens on the device."""
    import torch

    return torch.randint(0, WORDS, (sequences, length)).cuda()


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer that knows w0 to w7999."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ("<pad>", "<eos>", "<bos>", "<unk>")
    known = {f"w{number}": number for number in range(WORDS)}
    known |= {word: WORDS + number for number, word in enumerate(special)}
    raw = Tokenizer(models.WordLevel(known, unk_token=special[-1]))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {f"{word.strip('<>')}_token": word for word in special}
    PreTrainedTokenizerFast(tokenizer_object=raw, **named).save_pretrained(str(folder))


def texts(count: int) -> list[str]:
    """Return texts of random length and words."""
    chance = random.Random(0)  # noqa: S311 (no secret)
    return [
        " ".join(f"w{chance.randrange(WORDS)}" for _ in range(chance.randrange(16, LONGEST)))
        for _ in range(count)
    ]


def write_texts(path: Path, count: int) -> None:
    """Write texts as lines of JSON."""
    lines = (json.dumps({"text": text}) for text in texts(count))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
