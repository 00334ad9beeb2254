"""The user's own line: found below libraries, and named as the user would."""

from __future__ import annotations

import pytest

from gmlake.snapshots import Site
from gmlake.snapshots.frames import own_frame
from gmlake.snapshots.sites import OwnLines

LIBRARY = (
    "forward  /env/lib/python3.11/site-packages/torch/nn/modules/linear.py:134",
    "_call_impl  /src/torch/nn/modules/module.py:1762",
    "wrapped  /src/torch/_tensor.py:20",
    "run  /usr/lib/python3.11/runpy.py:88",
    "main  /env/bin/torchrun:8",
    "c10::cuda::malloc  ??:0",
)
OWN = "step  /home/me/project/train.py:31"


@pytest.mark.parametrize("frame", LIBRARY)
def test_no_frame_of_a_library_is_the_users(frame: str) -> None:
    assert own_frame([frame]) == ""
    assert own_frame([frame, OWN]) == OWN


@pytest.mark.parametrize(
    "frame",
    ["f  /home/me/torch/train.py:1", "f  /home/me/bin/train.py:1", "f  train.py:1"],
)
def test_a_users_file_is_the_users_wherever_it_lies(frame: str) -> None:
    assert own_frame([*LIBRARY, frame]) == frame


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], "train.py:31 in step()"),
        (["f  /home/me/project/models/gpt.py:2"], "train.py:31 in step()"),
        (["f  /home/me/tools/losses.py:2"], "project/train.py:31 in step()"),
        (["f  /opt/losses.py:2"], "/home/me/project/train.py:31 in step()"),
        (["f  losses.py:2"], "train.py:31 in step()"),
    ],
)
def test_paths_begin_where_the_users_files_part(others: list[str], said: str) -> None:
    sites = {number: Site(frames=(frame,)) for number, frame in enumerate(others, start=2)}
    assert OwnLines({1: Site(frames=(*LIBRARY, OWN)), **sites}).line(1) == said


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("<module>", "a.py:1"),
        ("<lambda>", "a.py:1 in <lambda>"),
        ("", "a.py:1"),
        ("f", "a.py:1 in f()"),
    ],
)
def test_a_line_names_its_function_if_it_has_one(function: str, said: str) -> None:
    assert OwnLines({1: Site(frames=(f"{function}  /p/q/a.py:1",))}).line(1) == said


def test_a_name_says_all_that_is_known() -> None:
    sites = {
        1: Site("layers.3", "forward", (*LIBRARY, OWN)),
        2: Site("layers.3", "forward"),
        3: Site(frames=LIBRARY),
    }
    lines = OwnLines(sites)
    assert lines.name(1) == "train.py:31 in step() · forward · layers.3"
    assert lines.name(2) == "forward · layers.3"
    assert lines.name(3) == "torch/nn/modules/linear.py:134 in forward()"
    assert lines.name(4) == lines.line(4) == ""
