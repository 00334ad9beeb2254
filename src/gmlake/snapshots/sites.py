"""Call sites of requests: call paths, each kept once, and the user's own line of each."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

_FOREIGN: Final = re.compile(
    r"[/\\](site-packages|dist-packages|lib[/\\]python\d[^/\\]*|c10|aten)[/\\]"
    r"|[/\\]torch[/\\](_\w+|amp|ao|autograd|backends|csrc|cuda|distributed|func|fx|jit|nn|optim"
    r"|utils)[/\\]|[/\\]torch[/\\](_\w+|functional|overrides|serialization)\.py:"
    r"|  (<|\?\?|:|\w+\.(cpp|cu|h):)|[/\\]bin[/\\][^/\\.]+:\d+$"
)
"""Of a package that was installed, of Python, of PyTorch's sources, of a program that launches
others, of C++, or of no file."""

_LEAST_ROOT: Final = 2  # folders that paths must share: "/home" alone is not a project


def own_frame(frames: Iterable[str]) -> str:
    """Return the innermost frame that is the user's own, "function  file:line"; "" if none is.

    frames: innermost first, as those of Site.
    """
    return next((frame for frame in frames if not _FOREIGN.search(frame)), "")


@dataclass(frozen=True)
class Site:
    """Where memory was requested.

    scope: the module, "layers.3.mlp". phase: "forward", "backward", ... frames: the call path,
    innermost first, each "function  file:line". Each may be empty.
    """

    scope: str = ""
    phase: str = ""
    frames: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name the site in one line; "" if nothing is known."""
        named = " · ".join(part for part in (self.phase, self.scope) if part)
        return named or own_frame(self.frames) or (self.frames[0] if self.frames else "")


def known_sites(table: Mapping[int, Site], used: NDArray[np.uint64]) -> dict[int, Site]:
    """Return the sites of a table that are in use."""
    return {number: table[number] for number in np.unique(used).tolist() if number in table}


class OwnLines:
    """The user's line for the number of a site, relative to the folder that all lines share."""

    def __init__(self, sites: Mapping[int, Site]) -> None:
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
        """Return the user's line as "train.py:31 in step()"; "" if none is known."""
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


# ---- as PyTorch's files have them

_MOST_FRAMES: Final = 64
_LONGEST: Final = 300


class Places:
    """Numbers for the call paths found in events and blocks; 0 for none.

    Files name one frame in very many lists, so lists are compared by which frames they name, and
    each frame is looked at once.
    """

    def __init__(self) -> None:
        self.sites: dict[int, Site] = {}
        self._numbers: dict[Site, int] = {}
        self._known: dict[tuple[str, tuple[int, ...]], int] = {}  # by scope and id() of frames,
        self._texts: dict[int, str] = {}
        self._kept: list[object] = []  # which these lists keep

    def number_of(self, entry: dict[str, Any]) -> int:
        """Return the number of an event's or block's place."""
        raw, metadata = entry.get("frames"), entry.get("user_metadata")
        scope = metadata[:_LONGEST] if type(metadata) is str else ""
        frames = raw[:_MOST_FRAMES] if type(raw) is list or type(raw) is tuple else ()
        key = scope, tuple(map(id, frames))
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = self._number(scope, frames)
            self._kept.append(frames)
        return number

    def _number(self, scope: str, frames: Iterable[object]) -> int:
        texts = tuple(text for text in map(self._text, frames) if text)
        if not texts and not scope:
            return 0
        site = Site(scope, "", texts)
        number = self._numbers.get(site)
        if number is None:
            number = self._numbers[site] = len(self._numbers) + 1
            self.sites[number] = site
        return number

    def _text(self, frame: object) -> str:
        text = self._texts.get(id(frame))
        if text is None:
            text = self._texts[id(frame)] = _text(frame)
        return text


def _text(frame: object) -> str:
    if type(frame) is not dict:
        return ""
    name, file, line = (frame.get(key) for key in ("name", "filename", "line"))
    if type(name) is not str or type(file) is not str or type(line) is not int:
        return ""
    number = line if 0 <= line < 1 << 31 else 0
    return f"{name[:_LONGEST]}  {file[-_LONGEST:]}:{number}"
