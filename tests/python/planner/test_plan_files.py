"""Plan files: what is written is read back, and nothing else is."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake.planner import MadeFor, SavedPlan, load_plans, plan_files, save_plans
from made_plans import made_plan

if TYPE_CHECKING:
    from pathlib import Path

MADE_FOR = MadeFor(rank=3, world_size=8, devices={0: "H100, 80 GiB", 5: "süß"}, torch="2.9.0")


def encoded() -> bytes:
    plan = made_plan()
    return plan_files.encode_plans(
        [SavedPlan(0, "train", plan), SavedPlan(5, "eval", plan)], MADE_FOR
    )


def with_header(change: Any) -> bytes:
    """The same file with another header and a right checksum."""
    data = encoded()
    length = struct.unpack_from("<I", data, 12)[0]
    header = json.loads(data[16 : 16 + length])
    header = change(header) if callable(change) else {**header, **change}
    text = json.dumps(header).encode()
    body = data[:12] + struct.pack("<I", len(text)) + text + data[16 + length : -32]
    return body + hashlib.sha256(body).digest()


def reason_of(data: bytes) -> str:
    with pytest.raises(gmlake.PlanError) as caught:
        plan_files.decode_plans(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    plan = made_plan()
    path = tmp_path / "plans"
    save_plans(path, [SavedPlan(0, "train", plan), SavedPlan(5, "eval", plan)], MADE_FOR)
    loaded = load_plans(path)
    assert loaded.made_for == MADE_FOR
    assert loaded.made_for.gmlake == gmlake.__version__
    assert [(saved.device, saved.kind) for saved in loaded.plans] == [(0, "train"), (5, "eval")]
    assert all(saved.plan.encode() == plan.encode() for saved in loaded.plans)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "plans"
    save_plans(path, [], MADE_FOR)
    with pytest.raises(gmlake.PlanError, match="too much"):
        save_plans(path, [SavedPlan(0, "x" * plan_files.MAX_HEADER_BYTES, made_plan())], MADE_FOR)
    assert load_plans(path).plans == ()
    with pytest.raises(OSError, match="No such file"):
        save_plans(tmp_path / "none" / "plans", [], MADE_FOR)
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    save_plans(pipe, [], MADE_FOR)
    assert os.read(reader, 1 << 16) == plan_files.encode_plans([], MADE_FOR)
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "plans", tmp_path / "link"
    link.symlink_to(target)
    for _ in range(2):  # to nothing, then to a file
        save_plans(link, [], MADE_FOR)
        assert link.is_symlink()
        assert load_plans(target).made_for == MADE_FOR
    link.unlink()
    link.symlink_to(link)  # leads nowhere, so that it is the file
    save_plans(link, [], MADE_FOR)
    assert load_plans(link).made_for == MADE_FOR


def test_the_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    save_plans(tmp_path / "plans", [], MADE_FOR)
    assert (tmp_path / "plans").stat().st_mode == other.stat().st_mode


def test_another_version_is_told_apart_from_damage() -> None:
    data = bytearray(encoded())
    data[8] = 2
    assert "version 2" in reason_of(bytes(data))


def test_every_changed_byte_and_every_cut_is_seen() -> None:
    data = encoded()
    for place in range(len(data)):
        bad = bytearray(data)
        bad[place] ^= 1
        reason_of(bytes(bad))
        reason_of(data[:place])
    assert "damaged" in reason_of(data + b"\0")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rank": -1}, "rank"),
        ({"rank": True}, "rank"),
        ({"world_size": "8"}, "world size"),
        ({"devices": []}, "devices"),
        ({"devices": {"x": "H100"}}, "device that is no number"),
        ({"devices": {"0": 5}}, "description"),
        ({"torch": None}, "version of PyTorch"),
        ({"plans": {}}, "list of plans"),
        ({"plans": [5]}, "something else"),
        ({"plans": []}, "more or less"),
        ({"plans": [{"bytes": 1 << 40}]}, "length of a plan"),
        (lambda header: [header], "cannot be read"),
    ],
)
def test_headers_that_make_no_sense_are_refused(change: Any, reason: str) -> None:
    assert reason in reason_of(with_header(change))


def test_plans_are_compared_with_what_the_header_says() -> None:
    def swap(header: dict[str, Any]) -> dict[str, Any]:
        header["plans"][0]["fingerprint"] = "0" * 16
        return header

    assert "fingerprint" in reason_of(with_header(swap))

    def shorten(header: dict[str, Any]) -> dict[str, Any]:
        header["plans"][0]["bytes"] -= 1
        return header

    reason_of(with_header(shorten))


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused(data: bytes, is_marked: bool) -> None:  # noqa: FBT001
    reason_of(plan_files.MAGIC + struct.pack("<I", 1) + data if is_marked else data)


def test_files_that_cannot_be_read_are_plan_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path, "a\0b", "two\nlines"):
        with pytest.raises(gmlake.PlanError, match="cannot be read") as caught:
            load_plans(path)
        assert "\n" not in str(caught.value)
