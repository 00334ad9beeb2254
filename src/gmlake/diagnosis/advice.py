"""Advice: the mistakes behind the findings of a diagnosis, each with the user's own line.

Memory is wasted in three ways, and each has a few rules.

    needless  an object that need not exist: it is never read, it equals another object, it waits
              on the device for the host, or every round makes it again from the same numbers
    kept      an object is kept after its last use: by a graph that a backward pass retains, that
              no backward pass uses, or that a sum keeps; by a list that grows; as a gradient that
              waits for its next round; else by a name

Advice covers only what a line of the user's can change, not the memory that one operator or one
backward pass uses between its own calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from gmlake.diagnosis.object_layout import (
    BEFORE,
    KEPT,
    NO_API,
    READS,
    TOUCHES,
    WRITES,
    ApiKind,
)
from gmlake.diagnosis.object_trace import Holder, Notes, Work
from gmlake.diagnosis.words import GUIDANCE, Pattern, line_of
from gmlake.snapshots.frames import named_frame, own_frame
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.diagnosis.object_trace import ObjectTrace, Place
    from gmlake.trace.layout import Records

LEAST_SHARE: Final = 0.01
"""Advice is worth its line from this part of the peak on."""

_ROUNDS: Final = 2
"""Rounds without a use until an object that outlives the trace counts as kept for nothing."""

_MOST: Final = 2 / 3
"""The share of a graph's bytes that a line must allocate to count as the line of the graph."""

_MOST_CASES: Final = 20
"""Cases that are put in order, the largest."""

_CHANGES: Final = {
    "never read": "do not make {what}: nothing reads it",
    "gradients that nobody reads": "nothing reads what this backward pass makes, {what}: say "
    "requires_grad_(False) of parameters that no optimizer has",
    "needless copy": "use the original instead of {what}: neither is written to while the copy is "
    "there",
    "on the device for the host": "leave {what} on the host: all that is done with it is to copy "
    "it there",
    "made again in each round": "make it once, before the loop: {what}, made of the same numbers",
    "graph retained": "leave out retain_graph=True: no other backward pass comes, and it keeps "
    "{what}",
    "kept round after round": "each round keeps more: {what}, and nothing reads it again; keep "
    "what is needed of it, as .detach().cpu() or .item(), or clear what it is kept in",
    "graphs kept": "what is kept here keeps the graph of each round with {what}: add .detach() or "
    ".item(), unless a backward pass follows",
    "a graph without a backward pass": "run this under torch.no_grad(): no backward pass follows, "
    "but its graph keeps {what}",
    "gradients kept": "zero_grad() right after this line: nothing reads {what} any more until "
    "{until}",
    "kept too long": "del {what} right after this line, its last use: it stays until {until}",
    "allocated early": "allocate {what} later, right before its first use",
    "too large": "allocate {least} for {what}: the rest is never used",
}
"""The change for each cause."""

_EASY: Final = next(n for n, text in enumerate(GUIDANCE) if text.startswith("easy"))
_NEVER: Final = -1


@dataclass(frozen=True)
class Advice:
    """One mistake and what to do about it. Sizes are in bytes.

    cause: the mistake in a few words. line: the line to change, "file:line". frames: its call path.
    change: what to do, as a sentence. bytes: the most it wastes at a time. objects: their numbers.
    saving_bytes: how much lower the highest peak is if this alone is followed, by the trace.
    peak_bytes: the highest peak with this advice and all before it followed. made, distance: of a
        finding the call path in which its object is made, and how far its calls are apart.
    """

    cause: str
    line: str
    frames: tuple[str, ...]
    change: str
    bytes: int
    saving_bytes: int
    peak_bytes: int
    objects: tuple[int, ...] = field(repr=False)
    made: tuple[str, ...] = ()
    distance: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "cause": self.cause,
            "line": self.line,
            "change": self.change,
            "bytes": self.bytes,
            "saving_bytes": self.saving_bytes,
            "peak_bytes": self.peak_bytes,
            "objects": list(self.objects),
        }


@dataclass
class _Case:
    """Stretches of objects with one cause, of _CHANGES, and one line.

    gone: (object, from, to, bytes): these are away from after one call until before another. again:
    bytes that are there all the time instead, to save the time of making them.
    """

    cause: str
    frame: str
    gone: list[_Gone] = field(default_factory=list)
    again: int = 0

    @property
    def objects(self) -> list[int]:
        return list(dict.fromkeys(one for one, _, _, _ in self.gone))

    def curve(self, count: int) -> Records:
        """Return how many bytes are away after each of `count` calls."""
        change = np.zeros(count + 1, np.int64)
        for _, begin, end, size in self.gone:
            if end > begin + 1:
                change[begin + 1] += size
                change[end] -= size
        away: Records = np.cumsum(change)[:-1] - self.again
        return away


def advise(trace: ObjectTrace, lives: Records, records: Records) -> tuple[Advice, ...]:
    """Return advice about a PyTorch program, the most effective first; none for other programs.

    lives, records: of each object and each finding, as the core found them.
    """
    if trace.notes is None or not len(trace.apis):
        return ()
    reader = _Reader(trace, trace.notes, lives, records)
    live = reader.live
    peak = int(live.max(initial=0))
    least = max(LEAST_SHARE * peak, 1)
    cases = [(case, case.curve(len(live))) for case in reader.cases()]
    cases = [(case, away) for case, away in cases if away.max() >= least]
    cases.sort(key=lambda one: -int(one[1].max()))
    told: list[Advice] = []
    for case, away in _in_order(cases[:_MOST_CASES], live, least):
        live = live - away
        told.append(
            Advice(
                case.cause,
                case.frame.rpartition("  ")[2],
                reader.path_of(case.frame),
                reader.change(case),
                int(away.max()),
                max(peak - int((reader.live - away).max()), 0),
                int(live.max()),
                tuple(case.objects),
            )
        )
    return tuple(told)


def _in_order(
    cases: list[tuple[_Case, Records]], live: Records, least: float
) -> Iterator[tuple[_Case, Records]]:
    """Yield greedily the cases that lower the peak most, then those that at least do no harm.

    If several peaks are about as high, no case alone lowers them: then the largest at the peak.
    """
    left = list(cases)
    while left:
        peak = int(live.max())
        savings = [peak - int((live - away).max()) for _, away in left]
        if max(savings) >= least:
            best = savings.index(max(savings))
        elif peak - int((live - sum(away for _, away in left)).max()) >= least:
            at = int(live.argmax())
            best = max(range(len(left)), key=lambda number: int(left[number][1][at]))
        else:
            break
        case, away = left.pop(best)
        live = live - away
        yield case, away
    for case, away in left:
        if case.again and int((live - away).max()) <= int(live.max()):
            yield case, away


class _Reader:
    """Answers the rules' questions about a trace."""

    def __init__(self, trace: ObjectTrace, notes: Notes, lives: Records, records: Records) -> None:
        self.trace = trace
        self.records = records
        self.notes = notes
        count = len(trace.apis)
        self.sizes: Records = trace.objects["size_bytes"].astype(np.int64)
        self.born: list[int] = _numbers(lives["alloc"], _NEVER)
        self.died: list[int] = _numbers(lives["free"], count)
        self.last: list[int] = _numbers(lives["latest"], _NEVER)
        self.flags: list[int] = trace.objects["flags"].tolist()
        self.held: list[int] = notes.held.tolist()
        self.works: list[int] = notes.works.tolist()
        self.kinds: list[int] = trace.apis["kind"].tolist()
        self.round: Records = np.searchsorted(notes.rounds, np.arange(count + 1), "right")
        self.end = count
        self._frames: dict[str, tuple[str, ...]] = {}
        self._own = [self._own_frame(place) for place in trace.places]
        self._place_of: list[int] = trace.place_of.tolist()
        self._tag: list[int] = trace.objects["tag"].tolist()
        self.taken: set[int] = set()

    # ---- lines

    def _own_frame(self, place: Place) -> str:
        frame = named_frame(place.frames) or (place.frames[0] if place.frames else "")
        self._frames.setdefault(frame, place.frames)
        return frame

    def path_of(self, frame: str) -> tuple[str, ...]:
        """Return a call path that has this innermost frame."""
        return self._frames.get(frame, (frame,) if frame else ())

    def made(self, one: int) -> str:
        """Return the user's own frame in which an object was made."""
        return self._own[self._tag[one]]

    def frame(self, api: int) -> str:
        """Return the user's own frame of an API; "" at the end."""
        return self._own[self._place_of[api]] if 0 <= api < self.end else ""

    def covering(self, ones: Iterable[int]) -> str:
        """Return the innermost of the user's own frames in which most bytes of these are made."""
        paths = [(self.trace.object_place(one).frames[::-1], self.sizes[one]) for one in ones]
        path: tuple[str, ...] = ()
        while True:
            shares: dict[str, int] = defaultdict(int)
            for frames, size in paths:
                if len(frames) > len(path):
                    shares[frames[len(path)]] += int(size)
            best = max(shares, key=shares.__getitem__, default="")
            if not best or shares[best] < _MOST * sum(int(size) for _, size in paths):
                break
            path = (*path, best)
            paths = [(frames, size) for frames, size in paths if frames[: len(path)] == path]
        inner = path[::-1]
        frame = named_frame(inner) or (inner[0] if inner else "")
        self._frames.setdefault(frame, inner)
        return frame

    def after_line(self, frame: str, api: int, end: int) -> int:
        """Return the last call before `end` that is still inside the line of a frame."""
        places, numbers = self.trace.places, self._place_of
        while api + 1 < end and frame in places[numbers[api + 1]].frames:
            api += 1
        return api

    def name(self, one: int) -> str:
        return self.trace.object_name(one)

    # ---- tables

    @cached_property
    def live(self) -> Records:
        """The sum of live objects after each API."""
        change = np.zeros(self.end + 1, np.int64)
        born = np.array(self.born, np.int64)
        died = np.array(self.died, np.int64)
        np.add.at(change, np.maximum(born, 0), self.sizes)
        np.add.at(change, died, -self.sizes)
        live: Records = np.cumsum(change)[:-1]
        return live

    @cached_property
    def accesses(self) -> list[list[tuple[int, int]]]:
        """Of each object its accesses, (API, flags), in order."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.sizes]
        accesses = self.trace.accesses
        rows = (
            self.trace.api_of_access.tolist(),
            accesses["object"].tolist(),
            accesses["flags"].tolist(),
        )
        for api, one, flags in zip(*rows, strict=True):
            of_one = found[one]
            if of_one and of_one[-1][0] == api:
                of_one[-1] = (api, of_one[-1][1] | flags)
            else:
                of_one.append((api, flags))
        return found

    @cached_property
    def objects_of(self) -> dict[int, list[tuple[int, int]]]:
        """Of each API the objects that it accesses, (object, flags)."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for one, of_one in enumerate(self.accesses):
            for api, flags in of_one:
                found[api].append((one, flags))
        return found

    def is_over(self, one: int) -> bool:
        """Return whether an object is known not to be needed after its last use."""
        flags, held, died = self.flags[one], self.held[one], self.died[one]
        since = max(self.last[one], self.born[one], 0)
        if held & Holder.STATE:  # which a program that only evaluates keeps for later
            updates = self.notes.updates
            return bool(np.count_nonzero((updates > since) & (updates < died)) >= _ROUNDS)
        if died < self.end and not held & Holder.MODEL:
            return True
        if died == self.end and (flags & BEFORE or held & Holder.MODEL):
            return False
        return not flags & KEPT or bool(self.round[died] - self.round[since] >= _ROUNDS)

    # ---- rules

    def cases(self) -> list[_Case]:
        """Return the findings of all rules; each object belongs to the first rule that takes it."""
        found: dict[tuple[str, str], _Case] = {}
        rules = (
            self._unread,
            self._copies,
            self._for_the_host,
            self._made_again,
            self._early,
            self._kept,
            self._oversized,
        )
        for rule in rules:
            taken = set()
            for cause, frame, gone, again in rule():
                one, begin, end, _ = gone
                if not frame or one in self.taken or end <= begin + 1:
                    continue
                case = found.setdefault((cause, frame), _Case(cause, frame))
                case.gone.append(gone)
                case.again += again
                if rule != self._early:  # one that is early may be late as well
                    taken.add(one)
            self.taken |= taken
        return list(found.values())

    def _whole(self, one: int) -> _Gone:
        return one, self.born[one] - 1, self.died[one], int(self.sizes[one])

    def _is_kept_beyond_its_line(self, one: int) -> bool:
        return self.frame(self.died[one]) != self.made(one) and self.is_over(one)

    def _unread(self) -> Iterator[_Found]:
        """Find objects that are never read, except by calls that overwrite them."""
        for one, accesses in enumerate(self.accesses):
            is_made = not self.flags[one] & BEFORE and one not in self._growing
            if not is_made or not self._is_kept_beyond_its_line(one):
                continue
            if any(not flags & WRITES for _, flags in accesses):
                continue
            is_gradient = bool(accesses) and bool(self.works[accesses[0][0]] & Work.BACKWARD)
            cause = "gradients that nobody reads" if is_gradient else "never read"
            yield cause, self.made(one), self._whole(one), 0

    def _copies(self) -> Iterator[_Found]:
        """Find copies that, like their source, never change while they are in use."""
        for api in np.flatnonzero(self.notes.works & Work.EQUAL).tolist():
            if self.works[api] & Work.BACKWARD:
                continue
            pairs = self.objects_of[api]
            copies = [one for one, flags in pairs if flags & WRITES]
            sources = [one for one, flags in pairs if not flags & WRITES]
            if len(copies) != 1 or len(sources) != 1:
                continue
            copy, source = copies[0], sources[0]
            end = self.last[copy]
            changes = WRITES | TOUCHES
            is_changed = any(
                flags & changes and api < at
                for one in (copy, source)
                for at, flags in self.accesses[one]
                if at <= max(end, api)
            )
            if is_changed or self.died[source] < end or end == api:
                continue
            yield "needless copy", self.made(copy), self._whole(copy), 0

    def _for_the_host(self) -> Iterator[_Found]:
        """Find objects copied from the host, or set, and copied back without any work."""
        if self.trace.name.startswith("cpu"):
            return
        for one, accesses in enumerate(self.accesses):
            if self.flags[one] & BEFORE or len(accesses) < 2 or not self.is_over(one):  # noqa: PLR2004
                continue
            first, *others = accesses
            kind = self.kinds[first[0]]
            filled = kind == ApiKind.SET or (
                kind == ApiKind.COPY and len(self.objects_of[first[0]]) == 1
            )
            if filled and all(
                self.kinds[api] == ApiKind.COPY
                and flags == READS
                and len(self.objects_of[api]) == 1
                for api, flags in others
            ):
                cause = "on the device for the host"
                yield cause, self.made(one), self._whole(one), 0

    def _made_again(self) -> Iterator[_Found]:
        """Find objects that several rounds compute from the same numbers."""
        alike: dict[tuple[int, int, str], list[int]] = defaultdict(list)
        for one in np.flatnonzero(self.notes.contents).tolist():
            is_own = self.born[one] != _NEVER and not self._maker(one) & Work.BACKWARD
            if is_own and one not in self.taken:
                key = (int(self.notes.contents[one]), int(self.sizes[one]), self.made(one))
                alike[key].append(one)
        for ones in alike.values():
            rounds = {int(self.round[self.born[one]]) for one in ones}
            if len(rounds) < _ROUNDS + 1:
                continue
            for place, one in enumerate(ones):
                stays = self.frame(self.died[one]) != self.made(one)
                again = int(self.sizes[one]) if stays and not place else 0
                cause = "made again in each round"
                yield cause, self.made(one), self._whole(one), again

    def _kept(self) -> Iterator[_Found]:
        """Find what keeps an object after its last use."""
        roots = {one: self._root(one) for one in self._growing}
        graphs = {frame for frame, is_root in roots.values() if not is_root}
        for one in self._unneeded:
            if one in self.taken:
                continue
            last, died = self.last[one], self.died[one]
            gone = (one, last, died, int(self.sizes[one]))
            if self._is_retained(one):
                yield "graph retained", self.frame(last), gone, 0
            elif one in self._growing:
                root, is_root = roots[one]
                if is_root and root not in graphs:
                    yield "kept round after round", root, gone, 0
                else:
                    yield "graphs kept", root, gone, 0
            elif frame := self._fruitless_frame(one):
                yield "a graph without a backward pass", frame, gone, 0
            elif self._is_held_by_graph(one):
                continue  # of which some backward pass still needs a part, or a name holds the rest
            elif self.held[one] & Holder.GRADIENT:
                frame = self.frame(last)
                gone = (one, self.after_line(frame, last, died), died, int(self.sizes[one]))
                yield "gradients kept", frame, gone, 0
            else:
                frame = self._name_line(one)
                gone = (one, self.after_line(frame, last, died), died, int(self.sizes[one]))
                yield "kept too long", frame, gone, 0

    @cached_property
    def _unneeded(self) -> list[int]:
        """The objects that are kept after their last use, other than for a backward pass."""
        return [
            one
            for one in range(len(self.sizes))
            if self.last[one] != _NEVER and self.is_over(one) and not self._dies_in_backward(one)
        ]

    def _dies_in_backward(self, one: int) -> bool:
        """Return whether a backward pass frees an object, as it frees its graph."""
        died = self.died[one]
        if died == self.end:
            return False
        before = self._works_before[died]
        return bool(self.works[before] & Work.BACKWARD) and self.frame(before) == self.frame(died)

    @cached_property
    def _works_before(self) -> list[int]:
        """For each call, the last one before it that is neither an allocation nor a free."""
        kinds = self.trace.apis["kind"]
        numbers = np.where(kinds >= ApiKind.COPY, np.arange(self.end), 0)
        found: list[int] = np.maximum.accumulate(numbers).tolist()
        return found

    def _is_retained(self, one: int) -> bool:
        """Return whether a backward pass retained an object's graph without a later pass."""
        last = self.last[one]
        if not self.works[last] & Work.RETAINS or not self._is_of_graph(one):
            return False
        return self._last_backward.get(int(self.round[last]), 0) <= last

    @cached_property
    def _last_backward(self) -> dict[int, int]:
        """For each round, the last call of a backward pass that frees its graph."""
        works = self.notes.works
        calls = np.flatnonzero((works & Work.BACKWARD != 0) & (works & Work.RETAINS == 0))
        return {int(self.round[api]): int(api) for api in calls}

    def _is_held_by_graph(self, one: int) -> bool:
        """Return whether a graph may hold an object, so that no line can delete it."""
        if self.works[self.last[one]] & Work.RETAINS and self._is_of_graph(one):
            return True
        return bool(self._maker(one) & Work.GRAPH) and not self._root(one)[1]

    def _name_line(self, one: int) -> str:
        """Return the last line that uses an object in the function that has a name for it.

        A caller keeps the objects that it has names for, and a module's forward pass keeps its
        arguments, so deleting them inside frees nothing.
        """
        last = self.trace.places[self._place_of[self.last[one]]].frames[::-1]
        made = self.trace.object_place(one).frames[::-1]
        starts = [place for place, frame in enumerate(last) if made and _same(frame, made[0])]
        last = last[starts[0] :] if starts else last
        found, shared = "", 0
        for mine, other in zip(last, made, strict=False):
            if not _same(mine, other):
                break
            found, shared = own_frame([mine]) or found, shared + 1
            if mine != other:
                break
        is_passed_on = 0 < shared < len(last) and last[shared - 1] == made[shared - 1]
        if is_passed_on and not _is_forward(last[shared]):  # without a name of its own
            found = own_frame([last[shared]]) or found
        return found or self.frame(self.last[one])

    def _early(self) -> Iterator[_Found]:
        """Find objects that are allocated some lines before their first use."""
        for row in self.records[self.records["pattern"] == Pattern.EARLY_ALLOCATION]:
            one, first = int(row["object"]), int(row["to_api"])
            if self.frame(first) != self.made(one):
                gone = (one, self.born[one] - 1, first, int(self.sizes[one]))
                yield "allocated early", self.made(one), gone, 0

    def _oversized(self) -> Iterator[_Found]:
        """Find objects that the program itself made larger than needed."""
        is_easy = self.records["guidance"] == _EASY
        for row in self.records[is_easy & (self.records["pattern"] == Pattern.OVERALLOCATION)]:
            one = int(row["object"])
            is_result = self.accesses[one][0][0] == self.born[one] + 1  # an operator chose
            if not self.held[one] & Holder.MODEL and not is_result:
                gone = (one, self.born[one] - 1, self.died[one], int(row["bytes"]))
                yield "too large", self.made(one), gone, 0

    def _is_of_graph(self, one: int) -> bool:
        """Return whether a graph may hold an object."""
        return any(self.works[api] & Work.GRAPH for api, _ in self.accesses[one])

    def _maker(self, one: int) -> int:
        """Return the Work of the call that wrote an object first."""
        first = next((api for api, flags in self.accesses[one] if flags & WRITES), None)
        return 0 if first is None else self.works[first]

    @cached_property
    def _growing(self) -> set[int]:
        """Objects of each round that stay while later rounds add more like them."""
        alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for one in range(len(self.sizes)):
            is_made = self.born[one] != _NEVER and self.last[one] != _NEVER
            if is_made and not self.held[one] and not self._dies_in_backward(one):
                alike[self.trace.object_place(one).frames].append(one)
        growing: set[int] = set()
        for ones in alike.values():
            ends: dict[int, set[int]] = defaultdict(set)
            for one in ones:
                ends[self._ends[self.died[one]]].add(int(self.round[self.last[one]]))
            for one in ones:
                end = self._ends[self.died[one]]
                then = int(self.round[end])
                if len(ends[end] - {then}) >= _ROUNDS and self.round[self.last[one]] < then:
                    growing.add(one)
        return growing

    @cached_property
    def _ends(self) -> list[int]:
        """For each call, the first of the consecutive frees around it: they end together."""
        found = list(range(self.end + 1))
        for api in range(1, self.end):
            if self.kinds[api] == self.kinds[api - 1] == ApiKind.FREE:
                found[api] = found[api - 1]
        return found

    @cached_property
    def _roots(self) -> dict[tuple[int, int], int]:
        """For each end and round, the last call that extends a graph which ends there."""
        found: dict[tuple[int, int], int] = {}
        for one, accesses in enumerate(self.accesses):
            end = self._ends[self.died[one]]
            for api, flags in accesses:
                if flags & WRITES and self.works[api] & Work.GRAPH:
                    key = (end, int(self.round[api]))
                    found[key] = max(found.get(key, 0), api)
        return found

    def _root(self, one: int) -> tuple[str, bool]:
        """Return the frame that keeps an object or its graph, and whether it is the object."""
        accesses = self.accesses[one]
        is_used = any(self.works[api] & Work.BACKWARD for api, _ in accesses)
        if is_used or not self._is_of_graph(one):
            return self.made(one), True
        key = (self._ends[self.died[one]], int(self.round[self.last[one]]))
        root = self._roots.get(key)
        if root is None or any(api == root and flags & WRITES for api, flags in accesses):
            return self.made(one), True
        return self.frame(root), False

    def _fruitless_frame(self, one: int) -> str:
        """Return where the graph that holds this is made, if no backward pass uses the graph."""
        if not self._is_of_graph(one):
            return ""
        return self._fruitless.get(self._ends[self.died[one]], "")

    @cached_property
    def _fruitless(self) -> dict[int, str]:
        """The ends of graphs in rounds without a backward pass, and where the graphs are made."""
        rounds: dict[int, list[int]] = defaultdict(list)
        used: set[int] = set()
        for one, accesses in enumerate(self.accesses):
            if self.born[one] == _NEVER:
                continue
            number = int(self.round[self.born[one]])
            if self._maker(one) & Work.GRAPH:
                rounds[number].append(one)
            if any(self.works[api] & Work.BACKWARD for api, _ in accesses):
                used.add(number)
        found: dict[int, str] = {}
        for number, ones in rounds.items():
            ends = {self._ends[self.died[one]] for one in ones if self.died[one] < self.end}
            if number not in used and ends:
                found |= dict.fromkeys(ends, self.covering(ones))
        return found

    # ---- words

    def _what(self, case: _Case) -> str:
        ones = case.objects
        largest = max(ones, key=self.sizes.__getitem__)
        names = {self.name(one) for one in ones}
        if len(ones) == 1 or len(names) == 1:
            times = f" ({len(ones):,} times)" if len(ones) > 1 else ""
            return f"`{self.name(largest)}`{times}"
        return f"{len(ones):,} tensors such as `{self.name(largest)}`"

    def change(self, case: _Case) -> str:
        """Return the change for a case, as a sentence."""
        least = int(self.sizes[case.objects[0]]) - case.gone[0][3]
        return _CHANGES[case.cause].format(
            what=self._what(case), until=self._until(case), least=format_size(least)
        )

    def _until(self, case: _Case) -> str:
        end = case.gone[0][2]
        if end == self.end:
            return "the end"
        return line_of(self.trace.place(end)) or "later"


if TYPE_CHECKING:
    _Gone: TypeAlias = tuple[int, int, int, int]
    _Found: TypeAlias = tuple[str, str, _Gone, int]


def _numbers(column: Records, missing: int) -> list[int]:
    numbers = np.where(column == NO_API, np.uint64(0), column).astype(np.int64)
    found: list[int] = np.where(column == NO_API, missing, numbers).tolist()
    return found


def _same(frame: str, other: str) -> bool:
    """Return whether two frames are of the same function."""
    return frame.rpartition(":")[0] == other.rpartition(":")[0]


def _is_forward(frame: str) -> bool:
    return frame.partition("  ")[0].endswith("forward")
