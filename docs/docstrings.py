"""Our docstrings as Markdown: what is said of each argument becomes an item of a list."""

# mypy: allow-subclassing-any

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from griffe import Object

_ITEM = re.compile(r"^(\*{0,2}\w+(?:, \w+)*): (?=\S)", re.MULTILINE)


class Items(griffe.Extension):
    """Changes each docstring as it is read."""

    def on_instance(self, *, obj: Object, **_ignored: Any) -> None:  # noqa: ANN401 (griffe's own)
        """Mark "name: text" at the beginning of a line as an item, with a blank line before."""
        if obj.docstring and _ITEM.search(obj.docstring.value):
            parts = re.split(r"\n(?=\*{0,2}\w+(?:, \w+)*: \S)|\n\n", obj.docstring.value)
            obj.docstring.value = "\n\n".join(_ITEM.sub(r"- `\1`: ", part) for part in parts)
