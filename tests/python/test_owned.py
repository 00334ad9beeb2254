"""Folders and files that are this user's alone, and files that appear whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gmlake import owned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    tmp_path.chmod(0o700)
    descriptor = owned.open_folder(tmp_path)
    yield descriptor
    os.close(descriptor)


def test_a_written_file_takes_the_place_of_a_link(tmp_path: Path, folder: int) -> None:
    (tmp_path / "other").write_bytes(b"precious")
    for target in ("other", "nothing"):
        (tmp_path / "file").unlink(missing_ok=True)
        (tmp_path / "file").symlink_to(target)
        owned.write_file(folder, "file", b"new", 0o640)
        assert not (tmp_path / "file").is_symlink()
        assert (tmp_path / "file").read_bytes() == b"new"
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "other").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]


def test_no_file_is_written_in_part(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def fail(*_arguments: object) -> None:
        assert (tmp_path / "file").read_bytes() == b"old"
        raise OSError("no space")

    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(OSError, match="no space"):
        owned.write_file(folder, "file", b"new", 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_no_name_is_used_twice(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    real = os.replace

    def replace(source: str, target: str, **folders: int) -> None:
        names.append(source)
        real(source, target, **folders)

    monkeypatch.setattr(os, "replace", replace)
    for _ in range(3):
        owned.write_file(folder, "file", b"new", 0o600)
    assert len(set(names)) == 3
    (tmp_path / names[0]).symlink_to("elsewhere")  # as if it had been guessed
    monkeypatch.setattr("secrets.token_hex", lambda _count: names[0].rpartition(".")[2])
    with pytest.raises(FileExistsError):
        owned.write_file(folder, "file", b"new", 0o600)
    assert not (tmp_path / "elsewhere").exists()
