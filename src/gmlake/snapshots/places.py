"""Call paths of PyTorch's files, each kept once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gmlake.snapshots.model import Site

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_FRAMES: Final = 64
_LONGEST: Final = 300


class Places:
    """Numbers for the call paths found in events and blocks; 0 where there is none.

    Files name one frame in very many lists, so lists are compared by which frames they name, and
    each frame is looked at once.
    """

    def __init__(self) -> None:
        """Begin with none."""
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
