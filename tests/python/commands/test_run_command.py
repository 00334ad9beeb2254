"""`gmlake run`: what the program sees, and when gmlake is let in; PyTorch is a fake here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import gmlake
from gmlake.allocator_conf import VARIABLES, read_allocator_conf
from gmlake.commands import main
from gmlake.pytorch.session_settings import Settings

STARTUP = str(Path(gmlake.__file__).parent / "pytorch" / "startup")
RUN = (sys.executable, "-m", "gmlake", "run")

SHOW = """
import json, os, sys
json.dump({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "package": __package__, "is_main": sys.modules["__main__"].__dict__ is globals(),
    "original": sys.orig_argv[1:], "optimize": sys.flags.optimize, "pid": os.getpid(),
}, sys.stdout)
"""


def run(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def paths(*folders: str | Path) -> str:
    """Return a PYTHONPATH with these folders first."""
    return os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))


@pytest.fixture
def show(tmp_path: Path) -> Path:
    """A script that prints what it sees, beside itself as a folder and as a zip file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "show.py", folder / "__main__.py"):
        path.write_text(SHOW)
    with zipfile.ZipFile(tmp_path / "show.zip", "w") as file:
        file.writestr("__main__.py", SHOW)
    return tmp_path


# ---- the program is run as python runs it


@pytest.mark.parametrize(
    "program",
    [
        ["show.py", "--policy", "x", "-h", "-m", "--", "a b"],
        ["-m", "show", "--policy", "x"],
        ["-m", "folder", "x"],
        ["-c", SHOW, "-m", "x"],
        ["-", "--policy"],
        ["folder", "x"],
        ["show.zip", "x"],
        ["./show.py"],
    ],
    ids=lambda program: program[0] + program[1][:8] if len(program) > 1 else program[0],
)
def test_a_program_sees_what_python_shows_it(program: list[str], show: Path) -> None:
    plain = run(sys.executable, "-B", *program, cwd=show, input=SHOW)
    served = run(sys.executable, "-B", *RUN[1:], *program, cwd=show, input=SHOW)
    assert (served.returncode, served.stderr) == (0, "")
    seen, expected = json.loads(served.stdout), json.loads(plain.stdout)
    del seen["pid"], expected["pid"]
    assert seen == expected


def test_two_dashes_may_end_the_options(show: Path) -> None:
    done = run(*RUN, "--policy", "caching", "--", "show.py", "x", cwd=show)
    assert json.loads(done.stdout)["argv"] == ["show.py", "x"]


def test_output_of_the_command_itself_may_be_closed() -> None:
    done = run("/bin/sh", "-c", 'exec "$@" >&-', "sh", *RUN, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def startup(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that finds our sitecustomize first, then those of a folder."""
    variables["PYTHONPATH"] = paths(STARTUP, folder)
    return run(sys.executable, "-c", code, env=os.environ | variables)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GMLAKE_ON_OOM", "x" * 5000),
        ("GMLAKE_ON_OOM", "x" * 5000 + "/oom.pickle"),
        ("GMLAKE_ON_OOM", "/a" * 2000),
        *(("GMLAKE_ON_OOM", place) for place in ("/\n/a", "/\udcff/a", ".")),
        ("GMLAKE_SHARE", "device,priority=1\n1"),
    ],
)
def test_a_variable_that_cannot_be_used_is_a_line_with_its_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=rf"\A{name}: [ -~]{{1,400}}\Z"):
        Settings.of()


@pytest.mark.parametrize("piece", ["x", " ", "a:[", "a:" + " " * 1000 + "[", "a :", "[,"])
def test_settings_of_pytorch_are_read_soon(piece: str) -> None:
    begin = time.process_time()
    assert read_allocator_conf({VARIABLES[0]: piece * (100_000 // len(piece))}) == {}
    assert time.process_time() - begin < 1


def test_a_file_that_cannot_be_read_is_not_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command of that name is found, whose file is gone before it is looked into."""
    path = str(tmp_path / "gone")
    monkeypatch.setattr("shutil.which", lambda _name: path)
    assert main(["run", "gone"]) == 2
    assert capsys.readouterr().err.strip().endswith(f"{path}: No such file or directory")
