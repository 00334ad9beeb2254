"""Streams that lend each other memory: what a lake tells of them."""

# mypy: allow-untyped-calls

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from developer import HAS_LAB, hooks, needs_lab
from gmlake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
OWNER, BORROWER = 5, 7


@pytest.fixture
def lake() -> Iterator[Lake]:
    """A lake with real bytes, which checks the order where there is a check."""
    with hooks(check_order=True) if HAS_LAB else nullcontext():
        opened = Lake("host", capacity="64MiB")
    with opened:
        yield opened


def hand_over(lake: Lake, size: int = 8 * MIB) -> gmlake.Block:
    """Free memory on one stream and ask for it on another."""
    lake.free(lake.allocate(size, stream=OWNER))
    return lake.allocate(size, stream=BORROWER)


# ---- what it tells


def test_what_was_borrowed_is_counted_for_each_pair(lake: Lake) -> None:
    assert lake.stream_pairs() == []
    before = lake.stats()
    assert (before["borrowed_bytes"], before["cross_stream_waits"]) == (0, 0)
    hand_over(lake)
    stats = lake.stats()
    assert stats["reserved_bytes"] == stats["borrowed_bytes"] == 8 * MIB
    (pair,) = lake.stream_pairs()
    assert (pair["owner"], pair["borrower"]) == (OWNER, BORROWER)
    assert (pair["borrowed_bytes"], pair["borrows"]) == (8 * MIB, 1)
    assert pair["waits"] == stats["cross_stream_waits"]
    assert pair["refused_waits"] == pair["deferred_free_bytes"] == 0


def test_deferred_bytes_are_counted_for_each_stream(lake: Lake) -> None:
    block = lake.allocate(2 * MIB, stream=OWNER)
    for stream in (1, 2, 0, OWNER):
        lake.record_stream(block, stream)
    assert lake.stats()["deferred_free_bytes"] == 0
    lake.free(block)
    assert lake.stats()["deferred_free_bytes"] == 2 * MIB
    pairs = {pair["borrower"]: pair for pair in lake.stream_pairs()}
    assert pairs.keys() == {0, 1, 2}
    assert all(pair["owner"] == OWNER for pair in pairs.values())
    assert all(pair["deferred_free_bytes"] == 2 * MIB for pair in pairs.values())
    lake.free(lake.allocate(1, stream=OWNER))
    assert lake.stats()["deferred_free_bytes"] == 0
    assert lake.stream_pairs() == []


@pytest.mark.parametrize("policy", gmlake.policies())
def test_every_policy_answers(policy: str) -> None:
    with Lake("sim", policy) as lake:
        hand_over(lake)
        lake.allocate(8 * MIB, stream=OWNER)
        lake.check()
        borrowed = sum(pair["borrowed_bytes"] for pair in lake.stream_pairs())
        assert borrowed == lake.stats()["borrowed_bytes"]


def test_arguments_and_the_lake_are_checked() -> None:
    with Lake("sim") as lake:
        block = lake.allocate(1)
        with pytest.raises(TypeError):
            lake.record_stream(block, "1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="closed"):
        lake.stream_pairs()


# ---- the check, and what it finds


@needs_lab
@pytest.mark.parametrize("call", ["event_record_all", "event_query"])
def test_the_check_finds_the_order_that_is_missing(call: str) -> None:
    with (
        hooks(check_order=True, skip_calls=[call]),
        Lake("host") as lake,
        pytest.raises(gmlake.Error, match=r"race: stream 0x7 .* stream 0x5"),
    ):
        hand_over(lake)


@needs_lab
def test_without_the_check_nobody_looks() -> None:
    with hooks(skip_calls=("event_record_all",)), Lake("host") as lake:
        hand_over(lake)


@needs_lab
@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (["create", "wait"], ValueError, "no driver call is called 'wait'"),
        ([3], TypeError, "must be text"),
        (3, TypeError, "iterable"),
    ],
)
def test_skipped_calls_have_names(names: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words), hooks(skip_calls=names):
        pass


@needs_lab
def test_what_orders_can_be_skipped_and_nothing_else() -> None:
    with Lake("sim") as lake:
        names = lake.stats()["driver_calls"]
    skipped = []
    for name in names:
        try:
            with hooks(skip_calls=(name,)):
                Lake("sim").close()
            skipped.append(name)
        except ValueError:
            pass
    assert skipped == [
        *("event_record", "event_record_all", "event_query", "event_synchronize"),
        *("stream_wait", "stream_synchronize", "device_synchronize"),
    ]


# ---- inside PyTorch, without a device


@pytest.mark.torch
def test_without_a_device_there_are_no_pairs() -> None:
    assert gmlake.stream_pairs() == gmlake.stream_pairs(3) == []
