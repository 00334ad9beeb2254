"""The versions of PyTorch: every place that names them agrees with gmlake.pytorch.versions."""

from __future__ import annotations

import json
import re

from gmlake.pytorch.versions import KNOWN, RANGE, VERSIONS
from places import ROOT
from sources import offenders, text_of

DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
BY_MINOR = {version.minor: version for version in VERSIONS}
RUN = [version.release for version in VERSIONS if version.tested != "compiled"]
(EVERYTHING,) = (version for version in VERSIONS if version.tested == "all")
IN_CI = [version.release for version in VERSIONS if version.in_each_change]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def found(pattern: str, path: str) -> str:
    match = re.search(pattern, text(path), re.MULTILINE)
    assert match, f"{path} has no {pattern}"
    return match[1]


def test_the_table_has_no_gap() -> None:
    assert list(KNOWN) == list(range(KNOWN[0], KNOWN[-1] + 1))
    assert all(each.release.startswith(f"2.{each.minor}.") for each in VERSIONS)
    assert {each.tested for each in VERSIONS} == {"compiled", "interface", "all"}


def other_versions(said: str) -> set[str]:
    ranges = set(re.findall(r"PyTorch\s+(2\.\d+ to 2\.\d+)", said))
    return ranges - {RANGE} | set(re.findall(r"PyTorch\s+(2\.\d+) or later", said)) - {
        f"2.{KNOWN[0]}"
    }


def test_documents_name_the_versions_that_the_adapter_knows() -> None:
    assert offenders(DOCUMENTS, lambda path: other_versions(text_of(path))) == {}
    said = f"PyTorch 2.1 to 2.2, PyTorch {RANGE}, PyTorch 2.3 or later"
    assert other_versions(said) == {"2.1 to 2.2", "2.3"}


def test_readme_says_which_versions_there_are() -> None:
    assert re.search(rf"PyTorch\s+{re.escape(RANGE)}\b", text("README.md"))


def test_the_extra_wants_the_oldest_version() -> None:
    assert f'torch = ["torch>=2.{KNOWN[0]}"]' in text("pyproject.toml")


def test_the_makefile_and_scripts_try_what_the_table_says() -> None:
    assert found(r"^STANDIN_TORCH \?= (.*)$", "Makefile") == EVERYTHING.release
    assert found(r"^VERSIONS \?= (.*)$", "Makefile").split() == RUN
    assert found(r" STANDIN_TORCH=(\S+) LENGTH=short ", "Makefile") in IN_CI
    others = [release for release in RUN if release != EVERYTHING.release]
    assert found(r"versions\.py --interface ([\d. ]+)", "benchmarks/results.sh").split() == others


def test_compatibility_says_how_each_version_was_tried() -> None:
    rows = re.findall(
        r"^\| ((?:2\.\d+(?:, )?)+) \| (.*)$", text("docs/compatibility.md"), re.MULTILINE
    )
    said = {int(name[2:]): how for names, how in rows for name in names.split(", ")}
    assert sorted(said) == list(KNOWN)
    for minor, how in said.items():
        assert ("only compiled" in how.lower()) == (BY_MINOR[minor].tested == "compiled"), how


def test_results_are_of_versions_that_ran() -> None:
    results = json.loads(text("benchmarks/results/versions.json"))
    names = re.findall(r"^\| (2\.\d+\.\d+) \|", text("docs/pytorch.md"), re.MULTILINE)
    assert names
    assert set(names) <= set(RUN)
    assert set(names) <= {key for key in RUN if key in json.dumps(results)}
