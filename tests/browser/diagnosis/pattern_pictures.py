"""Save the pictures of docs/diagnose.md: pattern_pictures.py EXAMPLES FOLDER [light|dark]."""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from pathlib import Path

import gmlake
from browsing import Browser
from gmlake.diagnosis.pages import report_of_diagnosis
from gmlake.pictures import render_page

INSIDE = ("overallocation", "non-uniform access frequency", "structured access")


def main(examples: Path, folder: Path, scheme: str) -> None:
    """Write one PNG for each pattern of examples/diagnosis/patterns.py, wasteful."""
    sys.path.insert(0, str(examples))
    patterns = importlib.import_module("patterns")
    browser = Browser(str(shutil.which("chromium")), str(shutil.which("chromedriver")))
    browser.emulate(prefers_color_scheme=scheme)
    ending = "" if scheme == "light" else f"-{scheme}"
    with tempfile.TemporaryDirectory() as scratch:
        for name, example in patterns.EXAMPLES.items():
            found = gmlake.find_inefficiencies(example.trace(), patterns=[name])
            browser.open(render_page(report_of_diagnosis(found)), Path(scratch))
            kind = "touched" if name in INSIDE else "lifelines"
            browser.save(
                f"section.{kind} .picture", folder / f"{name.replace(' ', '-')}{ending}.png"
            )
    browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), (*sys.argv[3:], "light")[0])
