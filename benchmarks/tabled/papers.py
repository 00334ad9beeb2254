"""Tables of papers.measure: what the papers trained, under every policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from papers.tables import TABLES
from tabled.markdown import caption

if TYPE_CHECKING:
    from collections.abc import Callable


def _captioned(make: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], str]:
    def captioned(result: dict[str, Any]) -> str:
        return f"{make(result)}\n\n{caption(result['run'], 'each training recorded once')}"

    return captioned


PAPERS = {("papers", name): _captioned(make) for name, make in TABLES.items()}
