"""The cache of compiled adapters: code that runs in this process is the user's alone to change."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake import owned
from gmlake.pytorch import adapter, compiling, notices

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.torch
NAME = "adapter-2.0-test.so"
MADE = b"made from our sources"
PLANTED = b"made by another user"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gmlake"


@pytest.fixture
def starts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Stand in for the compiler; each start adds to the list."""
    begun: list[int] = []

    def make(*_arguments: object, **_options: object) -> bytes:
        begun.append(os.getpid())
        return MADE

    assert not cache.exists()
    monkeypatch.setattr(compiling, "make", make)
    monkeypatch.setattr(compiling, "file_name", lambda *_, **__: NAME)
    monkeypatch.setattr(notices, "_said", set())
    adapter.find.cache_clear()
    yield begun
    adapter.find.cache_clear()


def found() -> tuple[Path, str]:
    """Return the adapter as a process that begins finds it, and what is said about that."""
    adapter.find.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", gmlake.GmlakeWarning)
        path = adapter.find()
    return path, " ".join(str(warning.message) for warning in caught)


def test_it_is_compiled_once_for_all(cache: Path, starts: list[int]) -> None:
    for _ in range(2):
        path, said = found()
        assert path.read_bytes() == MADE
        assert said == ""
        assert path.samefile(cache / NAME)
    assert len(starts) == 1
    assert cache.stat().st_mode & 0o777 == 0o700
    assert (cache / NAME).stat().st_mode & 0o777 == 0o700
    assert sorted(file.name for file in cache.iterdir()) == ["adapter-2.0-test.lock", NAME]


def plant(folder: Path) -> None:
    folder.mkdir(0o700, parents=True)
    (folder / NAME).write_bytes(PLANTED)
    (folder / NAME).chmod(0o700)


def is_refused(starts: list[int], why: str) -> bool:
    """Whether the adapter is compiled for this process alone, and a line says why."""
    path, said = found()
    assert path.read_bytes() == MADE
    assert path.parent.name.startswith("gmlake-")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "set XDG_CACHE_HOME to a folder of yours that no other user can write" in said
    assert len(starts) == 1
    return why in said


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o1777])
def test_a_folder_that_others_may_write_is_not_used(
    cache: Path, starts: list[int], mode: int
) -> None:
    plant(cache)
    cache.chmod(mode)
    assert is_refused(starts, f"{cache} is not used (other users may use it: its mode is {mode:o})")
    assert (cache / NAME).read_bytes() == PLANTED


def test_a_folder_of_another_user_is_not_used(
    cache: Path, starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(cache)
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert is_refused(starts, f"{cache} is not used (it belongs to another user)")
    assert [file.name for file in cache.iterdir()] == [NAME]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_used(cache: Path, starts: list[int]) -> None:
    plant(cache)
    os.chown(cache / NAME, 65534, -1)
    assert is_refused(starts, "it belongs to another user")


@pytest.mark.parametrize("how", ["link", "file", "dangling"])
def test_what_is_no_folder_is_not_used(cache: Path, starts: list[int], how: str) -> None:
    elsewhere = cache.parent / "elsewhere"
    plant(elsewhere)
    if how == "file":
        cache.write_bytes(b"")
    else:
        cache.symlink_to(elsewhere if how == "link" else "nothing")
    assert is_refused(starts, f"{cache} is not used")
    assert [file.name for file in elsewhere.iterdir()] == [NAME]
    assert not (cache.parent / "nothing").exists()


@pytest.mark.parametrize("how", ["link", "open"])
def test_a_file_that_others_may_change_is_not_used(
    cache: Path, starts: list[int], how: str
) -> None:
    plant(cache)
    if how == "open":
        (cache / NAME).chmod(0o757)
    else:
        (cache / NAME).rename(cache.parent / NAME)
        (cache / NAME).symlink_to(cache.parent / NAME)
    assert is_refused(starts, "")


def test_a_lock_that_is_a_link_empties_nothing(cache: Path, starts: list[int]) -> None:
    cache.mkdir(0o700, parents=True)
    precious = cache.parent / "precious"
    precious.write_bytes(b"precious")
    (cache / "adapter-2.0-test.lock").symlink_to(precious)
    assert is_refused(starts, "symbolic links")
    assert precious.read_bytes() == b"precious"


def test_no_room_costs_no_second_compilation(
    starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owned, "write_file", fail)
    assert is_refused(starts, "the cache is not used (No space left on device)")


def test_a_folder_that_is_swapped_later_is_not_looked_at(cache: Path, starts: list[int]) -> None:
    path, _ = found()
    cache.rename(cache.parent / "real")
    plant(cache)
    assert path.read_bytes() == MADE
    assert len(starts) == 1


def test_the_compiler_writes_where_nobody_else_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n'
        'stat -c "%a %u" "$(dirname "$2")" > "$2"; dirname "$2" >> "$2"\n'
    )
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    told = [compiling.make(tmp_path, 13).decode().splitlines() for _ in range(2)]
    assert [mode for mode, _ in told] == [f"700 {os.getuid()}"] * 2
    assert told[0][1] != told[1][1]
    assert not any(Path(folder).exists() for _, folder in told)
