"""Call paths of PyTorch's files, each kept once."""

from __future__ import annotations

from typing import Any, Final

from gmlake.snapshots.model import Site

_MOST_FRAMES: Final = 64
_LONGEST: Final = 300


class Places:
    """Numbers for the call paths found in events and blocks; 0 where there is none.

    Files name one list of frames many times: each list is looked at once.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.sites: dict[int, Site] = {}
        self._numbers: dict[Site, int] = {}
        self._seen: dict[int, tuple[tuple[str, ...], object]] = {}  # by id(), which the list keeps
        self._quick: dict[tuple[int, str], int] = {}  # by id() of such a list, and its metadata

    def number_of(self, entry: dict[str, Any]) -> int:
        """Return the number of an event's or block's place."""
        raw, metadata = entry.get("frames"), entry.get("user_metadata")
        scope = metadata[:_LONGEST] if type(metadata) is str else ""
        number = self._quick.get((id(raw), scope))
        if number is None:
            number = self._look(raw, scope)
            if id(raw) in self._seen:
                self._quick[id(raw), scope] = number
        return number

    def _look(self, raw: object, scope: str) -> int:
        frames = self._frames(raw)
        if not frames and not scope:
            return 0
        site = Site(scope, "", frames)
        number = self._numbers.get(site)
        if number is None:
            number = self._numbers[site] = len(self._numbers) + 1
            self.sites[number] = site
        return number

    def _frames(self, raw: object) -> tuple[str, ...]:
        if type(raw) is not list and type(raw) is not tuple:
            return ()
        known = self._seen.get(id(raw))
        if known is None:
            texts = tuple(map(_text, raw[:_MOST_FRAMES]))
            known = self._seen[id(raw)] = (tuple(text for text in texts if text), raw)
        return known[0]


def _text(frame: object) -> str:
    if type(frame) is not dict:
        return ""
    name, file, line = (frame.get(key) for key in ("name", "filename", "line"))
    if type(name) is not str or type(file) is not str or type(line) is not int:
        return ""
    number = line if 0 <= line < 1 << 31 else 0
    return f"{name[:_LONGEST]}  {file[-_LONGEST:]}:{number}"
