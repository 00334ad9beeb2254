"""Of columns of a recording, the first entry that is wrong is named, in any form of file."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.errors import TraceError
from gmlake.pictures.figures import Moments
from recording import BASE, MIB, alloc, block, event, free, load, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

TOP = (1 << 64) - MIB


def events(count: int = 6) -> list[dict[str, Any]]:
    """Return allocations that end again, one after another at one address."""
    return [e for _ in range(count) for e in (alloc(BASE, MIB), free(BASE, MIB))]


def with_event(place: int, **changes: object) -> dict[str, Any]:
    made = events()
    made[place] = {**made[place], **changes}
    return snapshot(made, [])


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a time": (with_event(3, time_us=(1 << 64) // 1000), "event 3: .*'time_us' is .*outside"),
    "an end": (with_event(3, addr=TOP, size=MIB), "event 3: .*reaches beyond the last address"),
    "an action": (
        snapshot([*events(), event("fly", BASE, 1), event("run", BASE, 1)], []),
        "event 12: the action 'fly' is not known",
    ),
    "a second allocation": (
        snapshot([*events(), *[alloc(at, 1) for at in (BASE, BASE, 64, 64)]], []),
        "event 13: allocates 0x[0-9a-f]+, which is live already",
    ),
    "a second free": (
        snapshot([*events(), free(BASE, MIB)], []),
        "event 12: frees 0x[0-9a-f]+, which event 11 freed already",
    ),
    "blocks over each other": (
        snapshot([], [segment(BASE, 4 * MIB, [block(BASE, 2 * MIB), block(BASE + MIB, 2 * MIB)])]),
        "segment 0, block 1 lies outside its segment or overlaps the block before it",
    ),
    "a block beyond the last address": (
        snapshot([], [segment(BASE, 4 * MIB, [block(TOP, 2 * MIB)])]),
        "segment 0, block 0 lies outside",
    ),
}


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("name", WRONG)
def test_the_first_wrong_entry_is_named(tmp_path: Path, name: str, form: str) -> None:
    document, reason = WRONG[name]
    data = pickle.dumps(document, 4) if form == "pickle" else json.dumps(document).encode()
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(TraceError, match=reason):
        gmlake.load(tmp_path / "file")


def test_a_block_of_pytorch_2_0_has_the_size_that_its_history_tells(tmp_path: Path) -> None:
    held = {"state": "active_allocated", "size": MIB, "history": [{"real_size": MIB - 700}]}
    free_part = {"state": "inactive", "size": MIB}
    seen = load(tmp_path, snapshot([], [segment(BASE, 2 * MIB, [free_part, held])]))[0]
    (start,) = seen.trace.start_blocks.tolist()
    assert start[1:4] == (BASE + MIB, MIB, MIB - 700)


def test_a_piece_between_two_blocks_of_one_line_counts_once_for_it(tmp_path: Path) -> None:
    frames = [{"name": "step", "filename": "/home/me/train.py", "line": 7}]
    parts = [block(BASE, MIB, MIB), block(BASE + MIB, 4 * MIB), block(BASE + 5 * MIB, MIB, MIB)]
    for one in parts:
        one["frames"] = frames
    made = load(tmp_path, snapshot([], [segment(BASE, 6 * MIB, parts)])).report()
    (told,) = [one for one in made.figures if isinstance(one, Moments)]
    (kept,) = told.moments[told.shown].stranded
    assert (kept.kept_bytes, kept.pieces, kept.blocks, kept.held_bytes) == (4 * MIB, 1, 2, 2 * MIB)
