"""Whose line a call path is named by: drawn paths, and recordings as strangers have them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.pictures.figures import Blocks, Moments
from gmlake.snapshots import Site
from gmlake.snapshots.frames import Origin, frame_of, named_frame, own_frame
from gmlake.snapshots.sites import OwnLines
from recording import BASE, MIB, alloc, block, event, figure, load, segment, snapshot
from stacks import Stacks

if TYPE_CHECKING:
    from pathlib import Path

    from stacks import Drawn

DRAWS = 2000
LEAST_RIGHT = 0.995
SITE = "/opt/venv/lib/python3.12/site-packages"


# ---- drawn


def wrong(drawn: Drawn) -> list[frozenset[str]]:
    """What a person would name in the paths that are named by another frame."""
    return [
        right
        for path, right in zip(drawn.paths, drawn.right, strict=True)
        if not (is_named(path, right) if right else is_nobodys(path))
    ]


def is_named(path: tuple[str, ...], right: frozenset[str]) -> bool:
    return named_frame(path) in right


def is_nobodys(path: tuple[str, ...]) -> bool:
    """Whether no line is claimed to be the user's, and what is named is PyTorch's."""
    return not own_frame(path) and named_frame(path).startswith(("torch::autograd", "at::"))


@pytest.mark.parametrize("seed", [1, 2])
def test_drawn_paths_are_named_as_a_person_would(seed: int) -> None:
    stacks = Stacks(seed)
    drawn = [stacks.recording() for _ in range(DRAWS)]
    failed = [one for one in drawn if wrong(one)]
    assert len(failed) <= (1 - LEAST_RIGHT) * DRAWS, Counter(one.kind for one in failed)
    # A user's own folder torch/optim cannot be told from PyTorch's in a checkout.
    missed = {frame for one in failed for right in wrong(one) for frame in right}
    assert all("/torch/optim/losses.py" in frame for frame in missed)


@pytest.mark.parametrize("seed", [3])
def test_lines_of_drawn_recordings_are_those_frames(seed: int) -> None:
    """OwnLines, which knows all paths of a recording, names no other frame than one path alone."""
    stacks = Stacks(seed)
    for _ in range(300):
        drawn = stacks.recording()
        lines = OwnLines({number: Site(frames=path) for number, path in enumerate(drawn.paths)})
        for number, path in enumerate(drawn.paths):
            function, _, place = named_frame(path).rpartition("  ")
            shown = lines.line(number)
            assert place.rpartition(":")[2] in shown or frame_of(path[0]).origin is Origin.NATIVE
            assert function in shown or function == "<module>" or "::" in function
            assert not shown or not any(bad in shown for bad in (".c:", ".o:", "??", "unwind"))


# ---- recordings


def frames(*paths: tuple[str, str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "filename": file, "line": line} for name, file, line in paths]


def recorded(folder: Path, *paths: list[dict[str, Any]]) -> gmlake.Snapshot:
    """A recording with one block of 32 MiB for each path."""
    size = 32 * MIB
    held = [
        {**block(BASE + number * size, size, size), "frames": path}
        for number, path in enumerate(paths)
    ]
    events = [event("segment_alloc", BASE, size * len(paths))]
    events += [alloc(BASE + number * size, size, frames=path) for number, path in enumerate(paths)]
    return load(folder, snapshot(events, [segment(BASE, size * len(paths), held)]))


def said_of(seen: gmlake.Snapshot) -> tuple[str, str, list[str]]:
    """The sentences about the peak, and the rows of the table."""
    report = gmlake.report_of(seen)
    moments = figure(report, Moments)
    first, *more = moments.moments[moments.shown].says
    return first, " ".join(more), [row.site for row in figure(report, Blocks).rows]


def test_the_users_line_is_found_below_very_many_frames(tmp_path: Path) -> None:
    engine = "torch::autograd::Engine::thread_main(x)"
    deep = [(f"_PyEval_{number}", "Python/ceval.c", number) for number in range(150)]
    deep += [("forward", f"{SITE}/torch/nn/modules/container.py", n) for n in range(80)]
    seen = recorded(
        tmp_path,
        frames(*deep[:90], (engine, "??", 0), *deep[90:], ("main", "/home/me/train.py", 3)),
    )
    assert said_of(seen)[2] == ["train.py:3 in main()"]
    (site,) = seen.sites.values()
    assert len(site.frames) == 64
    assert site.frames[0].startswith("_PyEval_0  ")
    assert f"{engine}  ??:0" in site.frames  # by which inferred categories know a backward pass


@pytest.mark.parametrize("history", [None, 3, [], [None], [{}], {}, [{"real_size": "x"}]])
def test_a_strange_history_is_passed_over(tmp_path: Path, history: object) -> None:
    held = {"size": 2 * MIB, "state": "active_allocated", "history": history}
    seen = load(tmp_path, {"segments": [segment(BASE, 2 * MIB, [held])], "device_traces": [[]]})
    assert seen[0].blocks["requested_bytes"].tolist() == [2 * MIB]
