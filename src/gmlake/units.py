"""Sizes in bytes, as people write and read them: "80GiB", 1048576, "20 MiB"."""

from __future__ import annotations

import re

_FACTORS = {
    "": 1,
    "b": 1,
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", start=1)},
    **{letter: 1024**power for power, letter in enumerate("kmgtp", start=1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", start=1)},
}
_SIZE = re.compile(r"\s*([0-9]{1,20})(?:\.([0-9]{1,9}))?\s*([a-zA-Z]{0,3})\s*", re.ASCII)
_LARGEST = 2**64 - 1
_STEP = 1024
_MINUTE = 60


def parse_size(text: str | int) -> int:
    """Read a size in bytes.

    Accepts an int, or a decimal number with an optional unit: B, KiB, MiB, GiB, TiB, PiB (powers
    of 1024), the same as K, M, G, T, P, and KB, MB, GB, TB, PB (powers of 1000), in any case.
    A fraction is allowed if the result is a whole number of bytes.

    Raises ValueError for anything else, and for results below 0 or above 2^64 - 1.
    """
    if isinstance(text, int):
        return _in_range(text, str(text) if abs(text) <= _LARGEST else "a size")
    match = _SIZE.fullmatch(text)
    if match is None or match[3].lower() not in _FACTORS:
        raise ValueError(
            f"{text[:40]!r} is not a size; write bytes or a unit, as in 80GiB or 512KiB"
        )
    whole, fraction, unit = match[1], match[2] or "", match[3].lower()
    scaled, rest = divmod(int(whole + fraction) * _FACTORS[unit], 10 ** len(fraction))
    if rest:
        raise ValueError(f"{text.strip()!r} is not a whole number of bytes")
    return _in_range(scaled, repr(text.strip()))


def _in_range(size_bytes: int, shown: str) -> int:
    if not 0 <= size_bytes <= _LARGEST:
        raise ValueError(f"{shown} is outside 0 to 2^64 - 1 bytes")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """Format a size in powers of 1024 with three digits: 1536 is "1.50 KiB"."""
    if abs(size_bytes) < _STEP:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):  # noqa: B007 (used after the loop)
        value /= _STEP
        if abs(value) < _STEP - 0.5:
            break
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0  # noqa: PLR2004
    return f"{value:.{digits}f} {unit}"


def format_share(part: float) -> str:
    """Write a share of a whole in percent: 0.5312 is "53.1 %"."""
    return f"{100 * part:.1f} %"


def exact_size(size_bytes: int) -> str:
    """Write a size exactly, as parse_size() reads it: 20971520 is "20MiB", 1000 is "1000B"."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        factor = _FACTORS[unit.lower()]
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def format_time(seconds: float) -> str:
    """Write a stretch of time for people, with three digits: 75 is "1 min 15 s"."""
    value = abs(seconds)
    if value >= _MINUTE:
        minutes, rest = divmod(round(value), _MINUTE)
        hours, minutes = divmod(minutes, _MINUTE)
        parts = [(hours, "h"), (minutes, "min"), (rest if not hours else 0, "s")]
        text = " ".join(f"{count} {unit}" for count, unit in parts if count)
    else:
        scaled, unit = value, "s"
        for smaller in ("ms", "µs", "ns"):
            if scaled >= 0.9995 or not value:  # noqa: PLR2004 (what rounds to 1.00)
                break
            scaled, unit = scaled * 1000, smaller
        text = f"{float(f'{scaled:.3g}'):g} {unit}"
    return f"-{text}" if seconds < 0 else text
