"""Call sites of requests: call paths, each kept once, and the user's own line of each."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gmlake.snapshots.frames import (
    Frame,
    Origin,
    compiled_of,
    frame_of,
    named_frame,
    named_of,
)


@dataclass(frozen=True)
class Site:
    """Where memory was requested.

    scope: what the program said of it. frames: the call path, innermost first, each
    "function  file:line". Each may be empty.
    """

    scope: str = ""
    frames: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name the site in one line; "" if nothing is known."""
        return self.scope or named_frame(self.frames)


class OwnLines:
    """The names of sites, for every table: the lines that a person would name, and ways to them.

    A name begins with the user's line, else a library's, else a function of PyTorch's. The user's
    are relative to the folder that they share, libraries' to where they are installed.
    """

    def __init__(self, sites: Mapping[int, Site]) -> None:
        self._sites = sites
        self._ways: dict[tuple[str, ...], Way] = {}
        self._texts: dict[str, str] = {}
        self._paths: dict[int, str] = {}
        self._owners: dict[int, str] = {}
        self._tables: list[tuple[Mapping[int, int], int]] = []
        self._root = _root_of(self._way(site) for site in sites.values())
        self._alike: dict[str, list[int]] = {}
        for number in sites:
            if line := self.line(number):
                self._alike.setdefault(line, []).append(number)

    def _way(self, site: Site) -> Way:
        found = self._ways.get(site.frames)
        if found is None:
            path = tuple(frame_of(text) for text in site.frames)
            found = self._ways[site.frames] = Way(path, tuple(named_of(path)))
        return found

    def frames(self, number: int) -> tuple[str, ...]:
        """Return the whole call path."""
        site = self._sites.get(number)
        return site.frames if site else ()

    def line(self, number: int) -> str:
        """Return the line as "train.py:31 in step()"; "" if none is known.

        A line of PyTorch's own is left out where the program said what it is.
        """
        site = self._sites.get(number)
        named = self._way(site).named if site else ()
        if not site or not named:
            return ""
        is_own = named[0].origin >= Origin.LIBRARY or not site.scope
        return self._short(named[0]) if is_own else ""

    def owner(self, number: int) -> str:
        """Return the line, with its callers where split() found that they tell more."""
        return self._owners.get(number) or self.line(number)

    def name(self, number: int) -> str:
        """Return the line, its callers, and what the program said of it; "" if nothing is known.

        Callers are named as far as they tell this path to the line from others in the recording.
        """
        site = self._sites.get(number)
        if site is None:
            return ""
        if number not in self._paths and (line := self.line(number)):
            ways = {one: self._callers(one) for one in self._alike[line]}
            for group, shown in _parted(ways, lambda ways: len(ways) == 1):
                self._paths |= dict.fromkeys(group, "".join(shown))
        parts = self._paths.get(number), self._compiled(site), site.scope
        return " · ".join(filter(None, parts))

    def split(self, table: Mapping[int, int]) -> None:
        """Split the line that holds more than half of a table by its callers, from now on.

        It is split until each part holds at most half of every table, or all paths are told apart;
        last by what the line called in libraries. table: the bytes that are live, by site.
        """
        held: Counter[str] = Counter()
        for number, size in table.items():
            held[self.owner(number)] += size
        total = sum(table.values())
        self._tables.append((table, total))
        for owner, size in held.most_common(1):
            if owner and 2 * size > total:
                self._split(next(one for one in table if self.owner(one) == owner))

    def _split(self, number: int) -> None:
        ways = {
            one: (*self._callers(one), *self._via(one)) for one in self._alike[self.line(number)]
        }

        def is_enough(parts: Mapping[tuple[str, ...], list[int]]) -> bool:
            members = [one for group in parts.values() for one in group]
            return len(parts) == 1 or all(
                2 * sum(table.get(one, 0) for one in members) <= total
                for table, total in self._tables
            )

        for group, shown in _parted(ways, is_enough):
            self._owners |= dict.fromkeys(group, "".join(shown))

    def apart(self, numbers: Sequence[int]) -> list[str]:
        """Return for sites of one name the innermost frames by which their paths differ."""
        ways = {}
        for number in numbers:
            way = self._way(self._sites[number]) if number in self._sites else Way((), ())
            inner = way.path.index(way.named[0]) if way.named else 0
            path = sorted(way.path[:inner], key=lambda frame: frame.origin is Origin.NATIVE)
            path += [frame for frame in way.path[inner:] if frame not in way.named]
            ways[number] = ("", *(f" via {self._short(frame)}" for frame in path))
        said: dict[int, str] = {}
        for group, shown in _parted(ways, lambda ways: len(ways) == 1):
            said |= dict.fromkeys(group, "".join(part for part in shown if part != _GAP).strip())
        return [said[number] for number in numbers]

    def _callers(self, number: int) -> tuple[str, ...]:
        """Return the line and its callers, from the innermost out."""
        line, *callers = self._way(self._sites[number]).named
        return (self._short(line), *(f" <- {self._short(one)}" for one in callers))

    def _via(self, number: int) -> tuple[str, ...]:
        """Return the innermost line of a library that the user's line called."""
        way = self._way(self._sites[number])
        inner = next((one for one in way.path if one.origin is Origin.LIBRARY), None)
        return (f" via {self._short(inner)}",) if inner and inner is not way.named[0] else ()

    def _short(self, frame: Frame) -> str:
        text = self._texts.get(frame.text)
        if text is None:
            text = self._texts[frame.text] = self._shortened(frame)
        return text

    def _shortened(self, frame: Frame) -> str:
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
        elif near := self._near(frame.file):
            short = f"{near}:{frame.line}"
        else:
            short = place
        function = frame.function
        if not function or function == "<module>":
            return short.removesuffix(",")
        return f"{short} in {function}" if function.endswith(">") else f"{short} in {function}()"

    def _near(self, file: str) -> str:
        """Return a caller's file relative to the lines' folder if it lies near that, else ""."""
        if not (self._root and _is_absolute(file) and _drive(file) == _drive(self._root)):
            return ""
        near = posixpath.relpath(file, self._root)
        is_near = _is_deep(posixpath.commonpath([file, self._root])) and not near.startswith(_FAR)
        return near if is_near else ""

    def _compiled(self, site: Site) -> str:
        """Name the compiled code that made a request below the line; "" if none did."""
        way = self._way(site)
        frame = compiled_of(way.path, way.named[0]) if way.named else None
        return f"compiled: {posixpath.basename(frame.file)}:{frame.line}" if frame else ""


class Way(NamedTuple):
    """A call path, and the frames of it that name it: the line, then its callers."""

    path: tuple[Frame, ...]
    named: tuple[Frame, ...]


_GAP: Final = " <- ..."
_FAR: Final = "../../../"


def _parted(
    ways: Mapping[int, tuple[str, ...]],
    is_enough: Callable[[Mapping[tuple[str, ...], list[int]]], bool],
) -> Iterator[tuple[list[int], tuple[str, ...]]]:
    """Yield groups of numbers, each with the parts of its ways by which it is told from others.

    A group is parted where its ways differ first, until there is enough of that. Parts in between,
    which all of a group have, are left out if they are many.
    """
    whole: dict[tuple[str, ...], list[int]] = {}
    for number, way in ways.items():
        whole.setdefault(way, []).append(number)
    first = next(iter(whole))
    left = [(whole, 1, first[:1])]
    while left:
        group, depth, shown = left.pop()
        one = next(iter(group))
        if not is_enough(group):
            at = depth
            while len({way[at : at + 1] for way in group}) == 1:
                at += 1
            between = one[depth:at] if at - depth == 1 else (_GAP,) * (at > depth)
            parts: dict[tuple[str, ...], dict[tuple[str, ...], list[int]]] = {}
            for way, numbers in group.items():
                parts.setdefault(way[at : at + 1], {})[way] = numbers
            left += [
                (part, at + 1, (*shown, *between, *own) if own else shown)
                for own, part in parts.items()
            ]
            continue
        yield [number for numbers in group.values() for number in numbers], shown


def _root_of(ways: Iterable[Way]) -> str:
    """Return the folder that the user's lines share, with a slash at its end; "" for none."""
    named = {way.named[0] for way in ways if way.named}
    files = [one.file for one in named if one.origin is Origin.PROJECT and _is_absolute(one.file)]
    folders = {posixpath.dirname(file) for file in files}
    root = posixpath.commonpath(folders) if len({_drive(one) for one in folders}) == 1 else ""
    return f"{root.rstrip('/')}/" if root and (_is_deep(root) or len(folders) == 1) else ""


def _is_deep(folder: str) -> bool:
    """Whether a folder is more than the root of a disk."""
    return folder.strip("/") not in ("", _drive(folder))


def told_apart(
    names: Sequence[str],
    columns: Sequence[object],
    details: Callable[[Sequence[int]], Iterable[Sequence[str]]],
) -> list[str]:
    """Return the names of the rows of a table, so that no two rows look alike.

    columns: what else each row shows. details: what may tell rows of these numbers from each other,
    the plainest first, a text for each.
    """
    alike: dict[object, list[int]] = {}
    for row, shown in enumerate(zip(names, columns, strict=True)):
        alike.setdefault(shown, []).append(row)
    said = list(names)
    for rows in alike.values():
        left = len(rows) - 1
        for texts in details(rows) if left else ():
            if len(set(texts)) > 1:
                for row, text in zip(rows, texts, strict=True):
                    said[row] += f" · {text}" if text else ""
            left = len(rows) - len({said[row] for row in rows})
            if not left:
                break
        if left:
            for count, row in enumerate(rows, 1):
                said[row] += f" ({count})"
    return said


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
        site = Site(scope, texts)
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
