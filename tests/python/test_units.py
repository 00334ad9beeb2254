"""Sizes as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlake import format_size, parse_size
from gmlake.units import exact_size, format_share, format_time


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("1KiB", 1024),
        ("1k", 1024),
        ("1 kb", 1000),
        ("1.5MiB", 1536 * 1024),
        (" 80GiB ", 80 << 30),
        ("2T", 2 << 40),
        ("18446744073709551615", 2**64 - 1),
        (7, 7),
    ],
)
def test_reads(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GiB",
        "-1",
        "1e9",
        "0x10",
        "1.1B",
        "1 EiB",
        "18446744073709551616",
        "99999999PiB",
        "1" * 5000,
        "٣",
        -1,
        2**64,
        pytest.param(10**5000, id="huge"),
    ],
)
def test_refuses_in_one_line(text: str | int) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{1,120}$"):
        parse_size(text)


@given(st.integers(0, 2**60))
def test_what_is_written_reads_back_to_three_digits(size: int) -> None:
    shown = parse_size_loosely(format_size(size))
    assert abs(shown - size) <= 0.006 * size


@given(st.integers(0, 2**64 - 1) | st.integers(0, 2**14 - 1).map(lambda size: size << 50))
def test_what_is_written_exactly_reads_back(size: int) -> None:
    assert parse_size(exact_size(size)) == size


def test_an_exact_size_is_short() -> None:
    said = [exact_size(size) for size in (0, 1000, 3 << 20, 16 << 40)]
    assert said == ["0B", "1000B", "3MiB", "16TiB"]


def parse_size_loosely(text: str) -> float:
    number, unit = text.split()
    return float(number) * parse_size("1" + unit)


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


@pytest.mark.parametrize(
    ("part", "text"),
    [(0.0, "0.0 %"), (0.5312, "53.1 %"), (1.0, "100.0 %"), (-0.25, "-25.0 %"), (12.0, "1200.0 %")],
)
def test_shares_have_one_digit(part: float, text: str) -> None:
    assert format_share(part) == text
