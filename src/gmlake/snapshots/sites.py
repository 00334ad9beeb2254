"""Call sites of requests: call paths, each kept once, and the user's own line of each."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.snapshots.frames import (
    Frame,
    Origin,
    compiled_of,
    frame_of,
    library_of,
    named_frame,
    own_of,
    torch_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

_LEAST_ROOT: Final = 2  # folders that paths must share: "/home" alone is not a project


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
        return named or named_frame(self.frames)


def known_sites(table: Mapping[int, Site], used: NDArray[np.uint64]) -> dict[int, Site]:
    """Return the sites of a table that are in use."""
    return {number: table[number] for number in np.unique(used).tolist() if number in table}


class OwnLines:
    """The line that a person would name for the number of a site: the user's, else a library's.

    The user's are relative to the folder that all of them share, libraries' to where they are
    installed.
    """

    def __init__(self, sites: Mapping[int, Site]) -> None:
        self._sites = sites
        self._names: dict[int, str] = {}
        self._lines: dict[int, str] = {}
        self._found: dict[tuple[str, ...], tuple[Frame | None, Frame | None]] = {}
        owns = {self._look(site)[0] for site in sites.values()}
        files = [own.file for own in owns if own is not None and own.origin is Origin.PROJECT]
        folders = {posixpath.dirname(file) for file in files if _is_absolute(file)}
        root = posixpath.commonpath(folders) if len({_drive(one) for one in folders}) == 1 else ""
        is_deep = len(root.strip("/").split("/")) >= _LEAST_ROOT or len(folders) == 1
        self._root = f"{root.rstrip('/')}/" if root and is_deep else ""

    def _look(self, site: Site) -> tuple[Frame | None, Frame | None]:
        """Return the frame that names a site, and the compiled code between it and the request."""
        found = self._found.get(site.frames)
        if found is None:
            path = [frame_of(text) for text in site.frames]
            frame = own_of(path) or library_of(path) or torch_of(path)
            found = frame, None if frame is None else compiled_of(path, frame)
            self._found[site.frames] = found
        return found

    def frames(self, number: int) -> tuple[str, ...]:
        """Return the whole call path."""
        site = self._sites.get(number)
        return site.frames if site else ()

    def line(self, number: int) -> str:
        """Return the line as "train.py:31 in step()"; "" if none is known.

        A line of PyTorch's own is left out where the module or the phase is known.
        """
        line = self._lines.get(number)
        if line is None:
            site = self._sites.get(number)
            frame = self._look(site)[0] if site else None
            is_known = site is not None and bool(site.scope or site.phase)
            is_own = frame is not None and frame.origin >= Origin.LIBRARY
            line = self._short(frame) if frame is not None and (is_own or not is_known) else ""
            self._lines[number] = line
        return line

    def _short(self, frame: Frame) -> str:
        if frame.origin is Origin.NATIVE:
            name = frame.function.replace("(anonymous namespace)::", "").partition("(")[0]
            return name.removeprefix("torch::autograd::generated::") + "()"
        place = frame.text.rpartition("  ")[2]
        if frame.origin is Origin.COMPILED:
            short = f"{posixpath.basename(frame.file)}:{frame.line}, compiled,"
        elif frame.origin in (Origin.LIBRARY, Origin.TORCH):
            short = place[frame.skipped :].replace("\\", "/")
        elif frame.file.startswith(self._root):
            short = place[len(self._root) :]
        else:
            short = place
        function = frame.function
        if not function or function == "<module>":
            return short.removesuffix(",")
        return f"{short} in {function}" if function.endswith(">") else f"{short} in {function}()"

    def _compiled(self, site: Site) -> str:
        """Name the compiled code that made a request below the line; "" if none did."""
        frame = self._look(site)[1]
        return f"compiled: {posixpath.basename(frame.file)}:{frame.line}" if frame else ""

    def name(self, number: int) -> str:
        """Return the line, the phase and the module, as far as they are known; else ""."""
        name = self._names.get(number)
        if name is None:
            site = self._sites.get(number)
            parts = (
                (self.line(number), self._compiled(site), site.phase, site.scope) if site else ()
            )
            name = self._names[number] = " · ".join(filter(None, parts))
        return name


def _drive(folder: str) -> str:
    """Return what paths must share so that one folder can hold them."""
    return folder[:2] if folder[1:2] == ":" else ""


def _is_absolute(file: str) -> bool:
    return file.startswith("/") or file[1:3] == ":/"


# ---- as PyTorch's files have them

_MOST_FRAMES: Final = 64
_MOST_LOOKED_AT: Final = 512  # PyTorch keeps more, of C and of Python, than anybody reads
_MOST_NATIVE: Final = 8  # innermost, which are kept of a path that is too long
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
        if not raw and not metadata and "history" not in entry:
            return 0
        if not raw and "history" in entry:
            raw = latest_use(entry).get("frames")
        scope = metadata[:_LONGEST] if type(metadata) is str else ""
        frames = raw[:_MOST_LOOKED_AT] if type(raw) is list or type(raw) is tuple else ()
        key = scope, tuple(map(id, frames))
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = self._number(scope, frames)
            self._kept.append(frames)
        return number

    def _number(self, scope: str, frames: Iterable[object]) -> int:
        texts = _shortened([text for text in map(self._text, frames) if text])
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


def latest_use(block: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what PyTorch 2.0 tells of a block beside its state: `real_size` and `frames`."""
    uses = block.get("history")
    latest = uses[0] if type(uses) is list and uses else None
    return latest if type(latest) is dict else {}


def _shortened(texts: list[str]) -> tuple[str, ...]:
    """Return the frames of a path that are kept: of a long one, those that tell, and both ends."""
    if len(texts) > _MOST_FRAMES:
        inner = texts[:_MOST_NATIVE]
        outer = [text for text in texts[_MOST_NATIVE:] if _tells(text)]
        left = _MOST_FRAMES - len(inner)
        if len(outer) > left:
            outer = [*outer[: left - left // 4], *outer[-(left // 4) :]]
        texts = [*inner, *outer]
    return tuple(texts)


def _tells(text: str) -> bool:
    """Whether a frame is of Python, or shows a backward pass."""
    return frame_of(text).origin != Origin.NATIVE or text.startswith("torch::autograd::")


def _text(frame: object) -> str:
    if type(frame) is not dict:
        return ""
    name, file, line = (frame.get(key) for key in ("name", "filename", "line"))
    if type(name) is not str or type(file) is not str or type(line) is not int:
        return ""
    number = line if 0 <= line < 1 << 31 else 0
    return f"{name[:_LONGEST]}  {file[-_LONGEST:]}:{number}"
