"""gmlake view: files in, one page out, and nothing lost by it."""

from __future__ import annotations

import os
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.commands import main
from recording import BASE, MIB, alloc, pairs
from running import refused

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("bokeh", reason="pip install 'gmlake[view]'")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pairs().save("run.gmtrace")
    return tmp_path


def titles(page: Path) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", page.read_text(encoding="utf-8"))


def test_a_trace_becomes_a_page_beside_the_user(folder: Path, capsys: Any) -> None:
    assert main(["view", "run.gmtrace"]) == 0
    assert "run.html: 1." in capsys.readouterr().out
    page = folder / "run.html"
    assert "memory over time" in titles(page)
    assert "<h1>run.gmtrace</h1>" in page.read_text(encoding="utf-8")
    assert main(["view", "run.gmtrace"]) == 0  # its own page may be written again


def test_a_snapshot_of_pytorch_becomes_a_page(folder: Path) -> None:
    (folder / "torch.pickle").write_bytes(pickle.dumps(pairs().to_snapshot(), protocol=4))
    assert main(["view", "torch.pickle", "-o", "page.html", "--device", "0"]) == 0
    assert "memory over time" in titles(folder / "page.html")


def test_a_saved_snapshot_of_a_lake_becomes_a_page(folder: Path) -> None:
    with gmlake.Lake("sim", "stitch", "1GiB") as lake:
        block = lake.allocate(5 << 20)
        lake.snapshot().save("lake.json")
        lake.free(block)
    assert main(["view", "lake.json"]) == 0
    assert "addresses at the end" in titles(folder / "lake.html")


def test_policies_are_added_on_demand(folder: Path) -> None:
    assert main(["view", "run.gmtrace", "--replay", "caching,stitch"]) == 0
    assert titles(folder / "run.html")[-1] == "policies side by side, on the same requests"
    assert "gmlake-paper" not in (folder / "run.html").read_text(encoding="utf-8")


def test_policies_of_several_devices_are_in_the_order_of_the_page(folder: Path) -> None:
    traces = [[alloc(BASE, size * MIB)] for size in (1, 3)]
    (folder / "two.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": traces}, 4))
    assert main(["view", "two.pickle", "--replay", "caching"]) == 0
    said = [title for title in titles(folder / "two.html") if "policies" in title]
    assert [title.partition(":")[0] for title in said] == ["Device 1", "Device 0"]


def test_a_link_in_the_place_of_a_page_is_not_written_through(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = folder / "run.html"
    page.symlink_to(folder / "nothing")
    assert main(["view", "run.gmtrace"]) == 2
    assert "run.html already exists" in capsys.readouterr().err
    page.unlink()
    read = gmlake.Snapshot.load

    def load(path: str) -> gmlake.Snapshot:
        page.symlink_to(folder / "nothing")  # by another user, meanwhile
        return read(path)

    monkeypatch.setattr(gmlake.Snapshot, "load", load)
    assert main(["view", "run.gmtrace"]) == 0
    assert not page.is_symlink()
    assert not (folder / "nothing").exists()
    assert sorted(path.name for path in folder.iterdir()) == ["run.gmtrace", "run.html"]


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "pipe: cannot be read: not a regular file" in refused("view", "pipe")


def test_a_page_that_cannot_be_written_is_one_line(folder: Path, capsys: Any) -> None:
    assert folder.exists()
    assert main(["view", "run.gmtrace", "-o", "missing/page.html"]) == 1
    assert "cannot write missing/page.html" in capsys.readouterr().err


@pytest.mark.slow
def test_a_million_events_make_a_small_page(folder: Path) -> None:
    pairs(500_000).save("long.gmtrace")
    assert main(["view", "long.gmtrace"]) == 0
    page = folder / "long.html"
    assert page.stat().st_size < 10_000_000
    assert "1,000,000 events: each stretch of 1,000 is drawn as" in page.read_text(encoding="utf-8")
