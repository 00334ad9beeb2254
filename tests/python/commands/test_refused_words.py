"""What the command line says of words that it cannot obey: all of it stands in refusals.txt.

An annex has such a file of its own.

There `$ gmlake WORDS` is followed by the line, in which `...` is whatever stands there: what
depends on the build, on the version of Python, or on the system.
"""

from __future__ import annotations

import pickle
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gmlake.commands import COMMANDS
from made_ranks import device, line, rank, write
from recording import BASE, FAR, MIB, alloc, free, pairs
from running import refused, run

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = sorted(Path(__file__).parents[1].glob("*/refusals.txt"))
TABLE = "\n".join(path.read_text(encoding="utf-8") for path in TABLES)
REFUSALS = dict(re.findall(r"^\$ gmlake ?(.*)\n(gmlake: .*)$", TABLE, re.MULTILINE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that words name. run.pickle has two devices, later.pickle the first of them."""
    made = tmp_path_factory.mktemp("refused")
    held = [alloc(BASE + number * MIB, MIB) for number in range(6)]
    full = {"action": "oom", "size": 500 * MIB, "device_free": MIB, "stream": 0, "time_us": 9}
    two = [[*held, full, free(BASE, MIB)], [alloc(FAR, MIB)]]
    for name, traces in {"run.pickle": two, "later.pickle": [held]}.items():
        (made / name).write_bytes(pickle.dumps({"segments": [], "device_traces": traces}, 4))
    for count in (4, 8):
        pairs(count).save(made / f"{count}.gmtrace")
    if "diagnose" in COMMANDS:
        from gmlake.diagnosis import TraceBuilder

        builder = TraceBuilder("one array")
        builder.free(builder.alloc(MIB))
        builder.build().save(made / "one.gmobjects")
    write(made / "job", rank(0, 1, device([MIB] * 3, [line(7, MIB)])))
    (made / "broken.pickle").write_bytes(b"\x80\x04not a pickle")
    (made / "mine.html").write_text("mine", encoding="utf-8")
    return made


@pytest.fixture(autouse=True)
def _untouched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stand in the folder; whatever is refused changes nothing in it."""

    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    monkeypatch.chdir(folder)
    before = contents()
    yield
    assert contents() == before


def is_like(said: str, expected: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), said) is not None


@pytest.mark.parametrize("words", REFUSALS)
def test_the_line_is(words: str) -> None:
    said = refused(*shlex.split(words)).rstrip("\n")
    assert is_like(said, REFUSALS[words]), said


def test_another_line_and_another_end_are_noticed() -> None:
    assert is_like("gmlake: no x; there are a, b", "gmlake: no x; there are ...")
    assert not is_like("gmlake: no y; there are a, b", "gmlake: no x; there are ...")
    assert not is_like("gmlake: no x, as ever", "gmlake: no x")
    with pytest.raises(AssertionError):
        refused("info")
    with pytest.raises(AssertionError, match="began a program"):
        run("run", "-c", "")
