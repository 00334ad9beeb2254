"""Which line of a call path is the user's own, and how it is named wherever it is shown."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gmlake.snapshots.model import Site

_FOREIGN: Final = re.compile(
    r"[/\\](site-packages|dist-packages|lib[/\\]python\d[^/\\]*|c10|aten)[/\\]"
    r"|[/\\]torch[/\\](_\w+|amp|ao|autograd|backends|csrc|cuda|distributed|func|fx|jit|nn|optim"
    r"|utils)[/\\]|[/\\]torch[/\\](_\w+|functional|overrides|serialization)\.py:"
    r"|  (<|\?\?|:|\w+\.(cpp|cu|h):)|[/\\]bin[/\\][^/\\.]+:\d+$"
)
"""Of a package that was installed, of Python, of PyTorch's sources, of a program that launches
others, of C++, or of no file."""

_LEAST_ROOT: Final = 2  # folders that paths must share: what shares but "/home" is no project


def own_frame(frames: Iterable[str]) -> str:
    """Return the innermost frame that is the user's own, "function  file:line"; "" if none is.

    frames: innermost first, as those of Site.
    """
    return next((frame for frame in frames if not _FOREIGN.search(frame)), "")


class OwnLines:
    """Who asked, by the number of a site: its line, from the folder that all lines share."""

    def __init__(self, sites: Mapping[int, Site]) -> None:
        """Find the folder."""
        self._sites = sites
        self._names: dict[int, str] = {}
        owns = map(own_frame, {site.frames for site in sites.values()})
        files = {own.rpartition("  ")[2] for own in owns}
        folders = {posixpath.dirname(file) for file in files if posixpath.isabs(file)}
        root = posixpath.commonpath(folders) if folders else ""
        is_deep = len(root.strip("/").split("/")) >= _LEAST_ROOT or len(folders) == 1
        self._root = f"{root.rstrip('/')}/" if folders and is_deep else ""

    def frames(self, number: int) -> tuple[str, ...]:
        """Return the whole call path."""
        site = self._sites.get(number)
        return site.frames if site else ()

    def line(self, number: int) -> str:
        """Return the user's line as "train.py:31 in step()"; "" where none is known."""
        function, _, line = own_frame(self.frames(number)).rpartition("  ")
        short = line.removeprefix(self._root)
        if not line or not function or function == "<module>":
            return short
        return f"{short} in {function}" if function.endswith(">") else f"{short} in {function}()"

    def name(self, number: int) -> str:
        """Return the line, the phase and the module, as far as they are known; else ""."""
        name = self._names.get(number)
        if name is None:
            site = self._sites.get(number)
            parts = (self.line(number), site.phase, site.scope) if site else ()
            name = " · ".join(filter(None, parts)) or (str(site) if site else "")
            self._names[number] = name
        return name
