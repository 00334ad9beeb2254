"""Sizes, sequences and a tokenizer that the programs of this folder share."""

# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import json
import os
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

LLAMA_1B: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
}
PROMPTS, NEW_TOKENS = 64, 32

told: dict[str, Any] = {}
"""What a program says of itself beside its peaks, or in place of them; peaks.py prints it."""


losses: list[Tensor] = []
"""Of each step, kept on the device; peaks.py prints them."""


_COMPUTES = os.environ.get("OTHERS_COMPUTE") == "1"  # on a GPU: see gpu/others.py


def backend() -> str:
    """Return what communicates: NCCL where it can."""
    return "nccl" if _COMPUTES else "gloo"


def begin() -> None:
    """Make a run repeatable, to the bit where kernels compute."""
    import torch

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(_COMPUTES, warn_only=True)


def drawn_lengths() -> list[int]:
    """Return tokens of a sequence for each step, multiples of 8."""
    chance = random.Random(0)  # noqa: S311 (no secret)
    return [8 * chance.randrange(8, LONGEST // 8 + 1) for _ in range(STEPS)]


def tokens(length: int, sequences: int = 2) -> Tensor:
    """Return sequences of random tokens on the device."""
    import torch

    return torch.randint(0, WORDS, (sequences, length)).cuda()


def prompts() -> list[list[int]]:
    """Return tokens of several lengths for servers of LLAMA_1B."""
    lengths = (drawn_lengths() * PROMPTS)[:PROMPTS]
    return [list(range(1, length // 2 + 1)) for length in lengths]


def memory() -> dict[str, int]:
    """Return this process's bytes: PyTorch's, with their peaks, and what is used of the device."""
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {
        "live_bytes": torch.cuda.memory_allocated(),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "peak_live_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "used_bytes": total - free,
    }


def note(moment: str, seen: dict[str, int]) -> None:
    """Keep what memory() said in the process of a server; its peaks are the program's."""
    told.setdefault("moments", {})[moment] = seen
    told.update({name: seen[f"peak_{name}"] for name in ("live_bytes", "reserved_bytes")})


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
