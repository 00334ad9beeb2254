"""Pictures of memory: plain figures, drawn into one self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake.pictures.page import (
        in_notebook as in_notebook,
        render_page as render_page,
        write_page as write_page,
    )

__getattr__ = lazily(__name__, {"gmlake.pictures.page": "in_notebook render_page write_page"})
