"""Changes of the project that cost no GPU memory: ten kinds, each in several ways."""

from __future__ import annotations

import ast
import re
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("x", "loss", "logits", "losses", "parts", "seen", "total", "found", "kept", "part")


def renamed(text: str, chance: Random) -> str:
    """Rename variables of functions."""
    for name in chance.sample(NAMES, 4):
        text = re.sub(rf"(?<![.\w]){name}(?![\w(]|=[^=])", f"{name}_{chance.randrange(100)}", text)
    return text


def moved(text: str, chance: Random) -> str:
    """Have every line lie further down."""
    return text.replace("\n\n\n", "\n\n\n" + "# A line of words.\n" * chance.randrange(1, 20), 1)


def reordered(text: str, chance: Random) -> str:
    """Put the functions and classes of a file in another order."""
    tree, lines = ast.parse(text), text.splitlines()
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = [node for node in tree.body if isinstance(node, kinds)]
    starts = [min([node.lineno, *(one.lineno for one in node.decorator_list)]) for node in nodes]
    pieces = [lines[start - 1 : node.end_lineno] for start, node in zip(starts, nodes, strict=True)]
    chance.shuffle(pieces)
    head = lines[: min(starts) - 1]
    return "\n".join([*head, *("\n".join([*piece, "", ""]) for piece in pieces)])


def commented(text: str, chance: Random) -> str:
    """Put comments between statements."""
    said = f"# This is number {chance.randrange(100)}."
    return re.sub(r"\n( +)(x|loss|for|with|return) ", rf"\n\1{said}\n\1\2 ", text)


def documented(text: str, chance: Random) -> str:
    """Give functions docstrings."""
    said = f'"""Do what is {chance.choice(["needed", "wanted"])}."""'
    return re.sub(r"\n( *)(def [^\n]+:)\n", rf"\n\1\2\n\1    {said}\n", text)


def untyped(text: str, chance: Random) -> str:
    """Take the types of results away."""
    return re.sub(r" -> [^:\n]+:\n", lambda one: ":\n" if chance.random() < 0.7 else one[0], text)


def with_more(text: str, chance: Random) -> str:
    """Add a function that nobody calls."""
    return (
        f"{text}\n\ndef unused_{chance.randrange(100)}(model, tokens):\n    return model(tokens)\n"
    )


def broken(text: str, chance: Random) -> str:
    """Break lines in two."""
    where = chance.choice([", ", "("])
    return re.sub(
        r"\n( +)((?:x|loss|logits|seen) = .+)",
        lambda one: (
            f"\n{one[1]}" + one[2].replace(where, f"{where}\n{one[1]}    ", 1)
            if where == "(" or "(" in one[2].partition(where)[0]
            else one[0]
        ),
        text,
    )


def spaced(text: str, chance: Random) -> str:
    """Put empty lines between statements."""
    return re.sub(r"\n( +)(x|loss|return) ", "\n" * chance.randrange(2, 4) + r"\1\2 ", text)


def checked(text: str, chance: Random) -> str:
    """Check what a function is given."""
    said = f"assert model is not None, {chance.randrange(100)}"
    return re.sub(r"\n(def \w+\(model: [^\n]+:)\n", rf"\n\1\n    {said}\n", text)


KINDS: tuple[Callable[[str, Random], str], ...] = (
    *(renamed, moved, reordered, commented, documented),
    *(untyped, with_more, broken, spaced, checked),
)


def harmless(number: int, text: str) -> str:
    """Return a file with a harmless change, another for each number."""
    made = KINDS[number % len(KINDS)](text, Random(number))  # noqa: S311 (the same each time)
    ast.parse(made)
    return made
