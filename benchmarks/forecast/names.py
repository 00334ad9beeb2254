"""The trainings that are forecast and measured, by name: what to run, and with which words."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "programs"


def named() -> dict[str, list[str]]:
    """Return the words behind `python` for each: a file of its own, or one of several in a file."""
    found = {"gpt2": [str(FOLDER / "gpt2.py")]}
    for name in ("language", "vision"):
        path = FOLDER / f"{name}.py"
        functions = re.findall(r"^def (\w+)\(batch: int", path.read_text("utf-8"), re.MULTILINE)
        found |= {function: [str(path), function] for function in functions}
    return found
