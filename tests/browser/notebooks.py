"""Run the notebooks of examples/ and keep what they print, pictures as PNG: notebooks.py [FILE...].

A page that a cell shows needs scripts, which sites that show notebooks leave out: a screenshot of
its top takes its place.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import base64
import html
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from browsing import Browser

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
WIDTH, LEAST_HEIGHT, MOST_HEIGHT = 960, 200, 1400
_LONGEST_CELL_S = 300
_FRAME = re.compile(r'<iframe[^>]* srcdoc="([^"]*)"></iframe>', re.DOTALL)


def keep(browser: Browser, path: Path, folder: Path) -> None:
    """Run one notebook, and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(
        notebook, timeout=_LONGEST_CELL_S, kernel_name="python3", resources=resources
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
        for output in cell.get("outputs", []):
            if "data" in output:
                output["data"] = _drawn(browser, dict(output["data"]), folder)
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, path)


def _drawn(browser: Browser, data: dict[str, Any], folder: Path) -> dict[str, Any]:
    frame = _FRAME.search(data.get("text/html", ""))
    if frame is None:
        return data
    browser.resize(WIDTH, LEAST_HEIGHT)
    browser.open(html.unescape(frame[1]), folder)
    height = int(browser.run("return document.documentElement.scrollHeight"))
    browser.resize(WIDTH, min(height, MOST_HEIGHT))
    picture = folder / "picture.png"
    browser.driver.save_screenshot(str(picture))
    return {
        "image/png": base64.b64encode(picture.read_bytes()).decode(),
        "text/plain": data["text/plain"],
    }


def main(paths: list[Path]) -> None:
    """Run them one after the other."""
    browser = Browser(str(shutil.which("chromium")), str(shutil.which("chromedriver")))
    with tempfile.TemporaryDirectory() as name:
        for path in paths:
            keep(browser, path, Path(name))
    browser.close()


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")))
