"""What a release changes of the checkout it is made from."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

import pytest

from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

STANDIN = ("gmlake/standin/libcuda.so.1", "gmlake/standin/libnvidia-ml.so.1")
URL = "https://example.org/gmlake"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    for name in (".ci/links.py", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    program = str(tmp_path / ".ci" / "links.py")
    subprocess.run([sys.executable, program, URL, "v1.2.3"], check=True)
    return tmp_path


def test_every_link_of_the_readme_becomes_absolute(checkout: Path) -> None:
    before = (ROOT / "README.md").read_text(encoding="utf-8")
    text = (checkout / "README.md").read_text(encoding="utf-8")
    pattern = r'(?:\]\(|src="|srcset="|href=")([^)"]*)'
    for old, new in zip(re.findall(pattern, before), re.findall(pattern, text), strict=True):
        if re.match(r"https?:|#", old):
            assert new == old
            continue
        path = old.partition("#")[0]
        kind = "raw" if path.endswith((".png", ".svg")) else "blob"
        assert new == f"{URL}/{kind}/v1.2.3/{old}"
        assert (ROOT / path).exists()


def test_the_projects_pages_are_there_and_nothing_else_changes(checkout: Path) -> None:
    before = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    begin = text.index("[project.urls]")
    end = text.index("", begin) + 1
    added = text[begin:end]
    assert text[:begin] + text[end:] == before
    assert f'Source = "{URL}"' in added
    for line in added[1:]:
        assert not line or f'= "{URL}' in line
        if "/v1.2.3/" in line:
            assert (ROOT / line.split("/v1.2.3/")[1].rstrip('"')).exists()


def test_release_and_test_workflows_name_what_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            for command in re.findall(r"run: make (.*)", line):
                words = [word for word in command.split() if "=" not in word and '"' not in word]
                assert words[0] in targets, line
            for name in re.findall(r"\.ci/[\w.]+", line):
                assert (ROOT / name).exists(), line


@pytest.fixture
def wheels() -> Any:
    """The program that builds the wheels."""
    spec = spec_from_file_location("wheels", ROOT / ".ci" / "wheels.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel_of(folder: Path, **sizes: int) -> Path:
    """Return a wheel with files of these sizes, which are stored as they are."""
    path = folder / "gmlake.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, size in sizes.items():
            file.writestr(name, bytes(size))
    return path


def test_a_wheel_brings_the_standin_under_the_names_of_nvidia(wheels: Any, tmp_path: Path) -> None:
    whole = dict.fromkeys(STANDIN, 10)
    assert wheels.faults(wheel_of(tmp_path, **whole)) == []
    for name in STANDIN:
        rest = {each: 10 for each in STANDIN if each != name}
        assert wheels.faults(wheel_of(tmp_path, **rest)) == [f"{name} is missing"]
    grafted = "gmlake.libs/libcuda-0123abcd.so.1"
    found = wheels.faults(wheel_of(tmp_path, **whole, **{grafted: 10}))
    assert found == [f"{grafted} is a copy of a library"]


def test_a_wheel_is_small_but_for_its_adapters(wheels: Any, tmp_path: Path) -> None:
    most = dict.fromkeys(STANDIN, 10) | {"gmlake/adapter/torch-2.11.so": 9_000_000}
    assert wheels.faults(wheel_of(tmp_path, **most, **{"gmlake/x": 2_990_000})) == []
    (found,) = wheels.faults(wheel_of(tmp_path, **most, **{"gmlake/x": 3_000_000}))
    assert found.endswith(
        "bytes without adapters, at most 3,000,000; did it bring debug information?"
    )


def test_nothing_in_a_wheel_loads_the_standin(wheels: Any) -> None:
    library, beside = STANDIN
    needed = {library: {"libc.so.6"}, beside: {"libcuda.so.1"}, "gmlake/_core.so": {"libc.so.6"}}
    assert wheels.wrong_links(needed) == []
    needed["gmlake/_core.so"].add("libcuda.so.1")
    assert wheels.wrong_links(needed) == ["gmlake/_core.so is linked to libcuda.so.1"]
