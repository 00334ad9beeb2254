"""Pictures of memory: plain figures, drawn into one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gmlake.pictures.page import in_notebook, render_page

if TYPE_CHECKING:
    from gmlake.pictures.figures import Report

__all__ = ["in_notebook", "render_page", "write_page"]


def write_page(report: Report, path: str | Path) -> None:
    """Write the page as a file that opens in any browser.

    Raises OSError, and UnsupportedError where Bokeh is not installed.
    """
    Path(path).write_text(render_page(report), encoding="utf-8")
