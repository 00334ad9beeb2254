"""Sizes as text."""

from __future__ import annotations

import pytest

from gmlake.units import exact_size, format_time


def test_an_exact_size_is_short() -> None:
    said = [exact_size(size) for size in (0, 1000, 3 << 20, 16 << 40)]
    assert said == ["0B", "1000B", "3MiB", "16TiB"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (5e-4, "500 µs"),
        (0.0890175, "89 ms"),
        (0.9996, "1 s"),
        (12.345, "12.3 s"),
        (75, "1 min 15 s"),
        (3600, "1 h"),
        (3725, "1 h 2 min"),
        (2e-9, "2 ns"),
        (-0.5, "-500 ms"),
    ],
)
def test_times_are_written_as_people_do(seconds: float, said: str) -> None:
    assert format_time(seconds) == said
