"""Text from outside, made fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Write every control character (newline, ESC, text direction) as an escape sequence."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
