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


def test_folders_that_others_may_use_are_told_apart(tmp_path: Path) -> None:
    for mode, forbidden, is_safe in [
        (0o700, owned.NO_ACCESS, True),
        (0o755, owned.NO_WRITE, True),
        (0o755, owned.NO_ACCESS, False),
        (0o720, owned.NO_WRITE, False),
        (0o702, owned.NO_WRITE, False),
    ]:
        tmp_path.chmod(mode)
        if is_safe:
            os.close(owned.open_folder(tmp_path, forbidden))
        else:
            with pytest.raises(PermissionError, match=f"its mode is {mode:o}"):
                owned.open_folder(tmp_path, forbidden)


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match=r"directory|symbolic"):
        owned.open_folder(tmp_path / "link")


def test_files_are_judged_as_their_folder_is(tmp_path: Path, folder: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    path.chmod(0o755)
    os.close(owned.open_file(folder, "file", owned.NO_WRITE))
    with pytest.raises(PermissionError, match="its mode is 755"):
        owned.open_file(folder, "file")
    path.chmod(0o757)
    with pytest.raises(PermissionError, match="its mode is 757"):
        owned.open_file(folder, "file", owned.NO_WRITE)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic"):
        owned.open_file(folder, "link")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PermissionError, match="not a plain file"):
        owned.open_file(folder, "pipe")


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
