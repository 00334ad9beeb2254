"""Settings of policies, and capacities, as people write them: words, sizes, or numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from gmlake import _core
from gmlake.units import exact_size, parse_size

knobs, policies, policy_help = _core.knobs, _core.policies, _core.policy_help

_NUMBER = re.compile(r"\s*[0-9]+\s*", re.ASCII)


def parse_capacity(capacity: int | str | None) -> int:
    """Return a capacity in bytes, 0 for None; ValueError for anything below 1 byte."""
    if capacity is None:
        return 0
    size_bytes = parse_size(capacity)
    if size_bytes == 0:
        raise ValueError("a capacity of 0 bytes cannot serve anything; leave it out for no limit")
    return size_bytes


def check_knobs(names: Iterable[str]) -> None:
    """Raise ValueError for an unknown setting; the core checks "knob.interval"."""
    known = [knob["name"] for knob in _core.knobs()]
    for name in names:
        if name.partition(".")[0] not in known:
            raise ValueError(f"no setting is called {name[:60]!r}; {_suggestion(name, known)}")


def _suggestion(name: str, known: list[str]) -> str:
    """Suggest a setting with a similar name; if there is none, list all."""
    close = get_close_matches(name[:60].lower(), known, n=1)
    if close:
        return f"did you mean {close[0]}? `gmlake info --knobs` lists all"
    return f"there are: {' '.join(known)}"


def settings_of(knobs: dict[str, int | str]) -> tuple[tuple[str, int], ...]:
    """Return settings as numbers for the core.

    Raises ValueError, with the name, for a value that is neither a size nor one of the setting's
    words. The core checks ranges.
    """
    check_knobs(knobs)
    words = {knob["name"]: knob["words"] for knob in _core.knobs()}
    return tuple((name, _number(name, value, words.get(name))) for name, value in knobs.items())


def as_typed(name: str, value: int | str) -> str:
    """Return a value of a setting as it may be typed: a word, a size with its unit, or a number."""
    knob = next((knob for knob in _core.knobs() if knob["name"] == name), None)
    if knob is not None and isinstance(value, int):
        if 0 <= value < len(knob["words"]):
            return knob["words"][value]
        if knob["is_size"] and value:
            return exact_size(value)
    return str(value)


def one_of(words: list[str]) -> str:
    """Return "time, balanced or memory"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _number(name: str, value: int | str, words: list[str] | None) -> int:
    if not words or not isinstance(value, str) or _NUMBER.fullmatch(value):
        try:
            return parse_size(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    word = value.strip().lower()
    if word not in words:
        raise ValueError(f"{name} is {value[:60]!r}, but must be {one_of(words)}")
    return words.index(word)
