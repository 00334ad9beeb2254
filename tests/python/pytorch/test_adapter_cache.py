"""The cache of compiled adapters: code that runs in this process is the user's alone to change."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.pytorch import adapter, compiling, notices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_used(cache: Path, starts: list[int]) -> None:
    plant(cache)
    os.chown(cache / NAME, 65534, -1)
    assert is_refused(starts, "it belongs to another user")


def test_a_lock_that_is_a_link_empties_nothing(cache: Path, starts: list[int]) -> None:
    cache.mkdir(0o700, parents=True)
    precious = cache.parent / "precious"
    precious.write_bytes(b"precious")
    (cache / "adapter-2.0-test.lock").symlink_to(precious)
    assert is_refused(starts, "symbolic links")
    assert precious.read_bytes() == b"precious"


def test_a_folder_that_is_swapped_later_is_not_looked_at(cache: Path, starts: list[int]) -> None:
    path, _ = found()
    cache.rename(cache.parent / "real")
    plant(cache)
    assert path.read_bytes() == MADE
    assert len(starts) == 1
