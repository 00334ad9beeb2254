"""Infers the categories of memory from call paths, lives and sizes, if a recording has none.

A backward pass begins with the gradient of the loss, a block of one number that lives until the
pass is over. It is known by its call path; without call paths, by being the last block of so few
bytes during whose life many older live blocks are freed, the youngest first, while new
blocks are made. Everything else follows from these passes:

1. optimizer state: made by an optimizer, and still live when the next pass begins, or lasting to
   the end. Other blocks made by an optimizer are temporary.
2. parameter: made while a module was built, loaded or moved, and used thereafter.
3. gradient: made within a backward pass and live beyond it, or freed by zero_grad(), or a bucket
   of DistributedDataParallel. A block made in a pass that lasts to the end must have the size of
   a parameter: libraries keep memory of their own.
4. temporary: made and freed within a pass, or outside of one without being live when one begins.
5. activation: made outside of a pass and live when the next one begins, or when memory ran out.
6. For lasting blocks without a telling call path, sizes decide: each gradient has a parameter of
   its size, and the rest of these sizes are an optimizer's. The oldest are parameters.

Where a network is only used, what it found and left is most likely its parameters.

Limits: recomputed activations are temporary, as made within a pass; a pass without a loss, whose
gradient the program gave, is found by call paths only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.snapshots.classes import distinct
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.snapshots.peaks import Lives
from gmlake.trace.layout import Kind
from gmlake.units import format_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.snapshots.sites import OwnLines

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

PARAMETER, GRADIENT, STATE, ACTIVATION, TEMPORARY, UNKNOWN = range(len(CATEGORIES))

_FEW_BYTES: Final = 8  # of one number
_LEAST_FREED: Final = 5  # blocks older than a pass that are freed in it
_LEAST_PART: Final = 0.3  # of the bytes that do not last and are older than a pass: freed in it
_LEAST_MADE: Final = 0.3  # blocks made in a pass for each older one that is freed
_HIGHEST_ORDER: Final = -0.5  # of the blocks that a pass frees: the youngest first
_MOST_WORK: Final = 50_000_000  # events to look at for passes where there are no call paths
_MOST_COPIES: Final = 4  # parameter, gradient, two states of Adam
_MOST_LOOKS: Final = 20_000
_WORKSPACES: Final = (8_519_680, 33_554_432)  # of PyTorch for cuBLAS, by the kind of device
_MOST_WORKSPACES: Final = 2  # of one size: of the program's thread and of the backward passes'
_MOST_OF_SIZES: Final = 0.9  # of the bytes: what must come in so many copies


class Role(IntEnum):
    """The kind of code that a request came from, by its call path."""

    NOBODY = 0
    """There is no call path: PyTorch's backward threads have none."""
    OTHER = 1
    MADE = 2
    """An object was made; a weak sign of a parameter."""
    MODULE = 3
    """A module was built, loaded or moved."""
    FORWARD = 4
    BACKWARD = 5
    LOSS = 6
    """The gradient of the loss, which lives as long as its pass."""
    OPTIMIZER = 7
    STATE = 8
    BUCKETS = 9
    """Of DistributedDataParallel, for gradients."""


_TORCH: Final = r".*[/\\]torch[/\\]"
_ROLES: Final = tuple(
    (role, re.compile("|".join(patterns)))
    for role, *patterns in (
        (Role.LOSS, rf"^_make_grads  {_TORCH}autograd[/\\]__init__\.py:"),
        (Role.BACKWARD, r"^_engine_run_backward  ", r"^torch::autograd::Engine::"),
        (Role.STATE, r"^_init_group  .*optim"),
        (Role.BUCKETS, rf"^(_ddp_init_helper|_pre_forward)  {_TORCH}nn[/\\]parallel[/\\]"),
        (
            Role.OPTIMIZER,
            rf"^{_TORCH}optim[/\\](?!lr_scheduler|swa_utils)",
            rf"^{_TORCH}nn[/\\]utils[/\\]clip_grad\.py:",
            r"[/\\](torchao|apex|bitsandbytes|deepspeed|transformers)[/\\]([^:]*[/\\])?\w*optim",
        ),
        (
            Role.MODULE,
            rf"^(_apply|convert|to|to_empty|cuda)  {_TORCH}nn[/\\]modules[/\\]module\.py:",
            rf"^(__init__|reset_parameters|materialize)  {_TORCH}nn[/\\]",
            rf"^{_TORCH}nn[/\\](init|parameter)\.py:",
            r"^(_load_from_state_dict|load_state_dict|from_pretrained)  ",
        ),
        (
            Role.FORWARD,
            r"^forward  ",
            rf"^_(wrapped_)?call_impl  {_TORCH}nn[/\\]modules[/\\]module\.py:",
            rf"^{_TORCH}nn[/\\]functional\.py:",
        ),
        (Role.MADE, r"^__init__  "),
    )
)
"""By a frame, "function  file:line"; the first that matches. Where one may begin anywhere, looking
for ".*" takes the square of a long name's time: so these begin at the beginning."""

_APPLIED: Final = re.compile(r"^apply  .*[/\\]torch[/\\]autograd[/\\]function\.py:")
_CLEARED: Final = re.compile(r"^zero_grad  .*[/\\]torch[/\\](optim|nn)[/\\]")


@dataclass(frozen=True, eq=False)
class Inferred:
    """A category for each block, as an index into CATEGORIES, and whether that is sure.

    has_lines: call paths told it; else lives and sizes alone.
    """

    categories: NDArray[np.int8]
    is_sure: Flags
    has_lines: bool

    def in_words(self, lives: Lives, ids: Integers) -> str:
        """Say that categories are inferred, and how sure they are for these blocks."""
        if not self.has_lines:
            return "categories are inferred from lifetimes and sizes alone: a guess"
        held = int(lives.size_bytes[ids].sum())
        sure = int(lives.size_bytes[ids[self.is_sure[ids]]].sum())
        part = f"; certain for {format_share(sure / held)} of the bytes at the peak" if held else ""
        return f"categories are inferred from call paths and lifetimes{part}"


def with_categories(seen: DeviceSnapshot, lines: OwnLines) -> tuple[DeviceSnapshot, str]:
    """Return a device whose blocks have categories, and a remark on them.

    The same device and "" if categories are known, or cannot be inferred. What the program named
    itself is not inferred.
    """
    if (seen.categories != UNKNOWN).any():
        return seen, ""
    found, told = infer(seen, lines), seen.told_categories
    if found is None and told is None:
        return seen, ""
    shown = copy(seen)  # including its cached properties
    if found is None:
        shown.categories = told if told is not None else seen.categories
        return shown, "categories are those that the program named"
    if told is not None:
        found.categories[told != UNKNOWN] = told[told != UNKNOWN]
        found.is_sure[told != UNKNOWN] = True
    shown.categories, shown.is_sure = found.categories, found.is_sure
    return shown, found.in_words(seen.lives, seen.peak.ids)


def infer(seen: DeviceSnapshot, lines: OwnLines) -> Inferred | None:
    """Return the category of each block; None if there is no sign of a network."""
    if not len(seen.events):
        return None
    paths = _Paths(seen, lines)
    passes = _passes_by_path(seen, paths)
    if not len(passes.begin) and not paths.has_lines:
        passes = _passes_by_lives(seen)
    role, lives = paths.of_block, seen.lives
    is_old = (lives.born < 0) & (lives.died == len(seen.events)) & (lives.size_bytes > 0)
    has_network = (role == Role.FORWARD).any() and ((role == Role.MODULE) | is_old).any()
    if not len(passes.begin) and not has_network:
        return None
    return _Sorting(seen, paths, passes).result()


class _Paths:
    """The roles of blocks, of events, and what zero_grad() freed."""

    def __init__(self, seen: DeviceSnapshot, lines: OwnLines) -> None:
        lives, rows = seen.lives, len(seen.events)
        sites, which = distinct(np.concatenate([lives.site, seen.event_sites]))
        told: dict[str, Role | None] = {}
        paths = [lines.frames(number) for number in sites.tolist()]
        roles = np.array([_role(path, told) for path in paths], np.int8)
        clears = [any(map(_CLEARED.search, path)) for path in paths]
        count = len(lives.site)
        self.of_block: NDArray[np.int8] = roles[which[:count]]
        self.of_row: NDArray[np.int8] = roles[which[count:]]
        self.has_lines = bool((roles > Role.OTHER).any())
        # Blocks are of one kind by their call path, or without call paths by size.
        self.kind: Integers = which[:count]
        if not self.has_lines:
            self.kind = distinct(lives.requested_bytes)[1]
        ended = np.minimum(lives.died, max(rows - 1, 0))
        self.is_cleared: Flags = np.zeros(count, np.bool_)
        if rows:
            cleared = np.array(clears, np.bool_)[which[count:]]
            self.is_cleared = cleared[ended] & (lives.died < rows)


def _role(path: Iterable[str], told: dict[str, Role | None]) -> Role:
    """Return the role of the innermost frame that has one."""
    result, inner = Role.NOBODY, ""
    for frame in path:
        role = told[frame] if frame in told else told.setdefault(frame, _role_of_frame(frame))
        if role is not None and role != Role.MADE:
            return role
        if inner.startswith("backward  ") and _APPLIED.search(frame):
            return Role.BACKWARD
        result, inner = max(result, role or Role.OTHER), frame
    return result


def _role_of_frame(frame: str) -> Role | None:
    return next((role for role, pattern in _ROLES if pattern.search(frame)), None)


@dataclass(frozen=True, eq=False)
class _Passes:
    """Backward passes: the rows at which each begins and ends, ascending, none within another.

    is_cut: memory ran out in it.
    """

    begin: Integers
    end: Integers
    is_cut: Flags


def _passes(begin: Integers, end: Integers, refused: Integers) -> _Passes:
    """Join those that overlap; one in which memory ran out ends there."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    is_first = np.concatenate([[True], begin[1:] > end[:-1]])[: len(begin)]
    last = np.append(np.flatnonzero(is_first)[1:] - 1, len(begin) - 1)[: is_first.sum()]
    begin, end = begin[is_first], end[last]
    following = np.append(refused, np.iinfo(np.int64).max)[np.searchsorted(refused, begin)]
    return _Passes(begin, np.minimum(end, following), following <= end)


def _passes_by_path(seen: DeviceSnapshot, paths: _Paths) -> _Passes:
    """Return the lives of the losses' gradients, and events of backward passes around no loss."""
    lives, kind = seen.lives, seen.events["kind"]
    refused = np.flatnonzero(kind == Kind.OOM)
    is_loss = (paths.of_block == Role.LOSS) & (lives.born >= 0)
    begin, end = lives.born[is_loss], lives.died[is_loss]
    found = _passes(begin, end, refused)
    # PyTorch's threads have no call paths; if no other thread has any, that means nothing.
    backward = [Role.BACKWARD, *([Role.NOBODY] if paths.has_lines and not len(begin) else [])]
    rows = np.flatnonzero((kind == Kind.ALLOC) | (kind == Kind.FREE))
    if not paths.of_row[kind == Kind.FREE].any():
        rows = np.flatnonzero(kind == Kind.ALLOC)
    is_it = np.isin(paths.of_row[rows], backward)
    edge = np.diff(np.concatenate([[0], is_it.astype(np.int8), [0]]))
    first, last = rows[np.flatnonzero(edge == 1)], rows[np.flatnonzero(edge == -1) - 1]
    inside = np.searchsorted(found.begin, first, side="right") - 1
    is_known = (inside >= 0) & (first <= np.append(found.end, -1)[inside])
    more = ~is_known & (first < last)
    return _passes(
        np.concatenate([begin, first[more] - 1]), np.concatenate([end, last[more]]), refused
    )


def _passes_by_lives(seen: DeviceSnapshot) -> _Passes:
    """Find blocks of one number during whose life most older blocks are freed."""
    lives, rows = seen.lives, len(seen.events)
    born, died, sizes = lives.born, lives.died, lives.size_bytes
    change, kind = lives.change, seen.events["kind"]
    lasts = (died == rows) & (sizes > 0)
    lasting = int(sizes[lasts & (born < 0)].sum()) + np.cumsum(_at_birth(lives, lasts, rows))
    passing = lives.live_bytes - lasting
    requested = lives.requested_bytes
    is_few = (requested > 0) & (requested <= _FEW_BYTES) & (born >= 0) & (died < rows)
    few = np.flatnonzero(is_few)
    few = few[died[few] - born[few] > 2 * _LEAST_FREED]
    few = few[np.argsort(died[few] - born[few], kind="stable")]
    few = few[np.cumsum(died[few] - born[few]) <= _MOST_WORK][-_MOST_LOOKS:]
    is_change = change != 0
    birth = np.full(rows, rows, np.int64)  # of the block that an event frees or makes
    birth[is_change] = born[seen.events["id"][is_change]]
    is_made = kind == Kind.ALLOC
    taken: list[tuple[int, int]] = []
    limit = rows
    for number in few[np.argsort(-born[few], kind="stable")].tolist():
        begin, end = int(born[number]), int(died[number])
        if end >= limit:
            continue
        births = birth[begin + 1 : end]
        older = births < begin
        count = int(older.sum())
        if count < _LEAST_FREED or _order(births[older]) > _HIGHEST_ORDER:
            continue
        freed = -int(change[begin + 1 : end][older].sum())
        made = int(is_made[begin + 1 : end].sum())
        if freed >= _LEAST_PART * int(passing[begin]) and made >= _LEAST_MADE * count:
            taken.append((begin, end))
            limit = begin
    table = np.array(taken, np.int64).reshape(-1, 2)
    return _passes(table[:, 0], table[:, 1], np.flatnonzero(kind == Kind.OOM))


def _order(births: Integers) -> float:
    """Return 1 if the oldest are freed first, -1 if the youngest are: a correlation."""
    if births[0] == births.max() == births.min():
        return 0.0
    return float(np.corrcoef(births, np.arange(len(births)))[0, 1])


def _at_birth(lives: Lives, chosen: Flags, rows: int) -> Integers:
    """Return for each event the bytes of a chosen block that it makes."""
    result = np.zeros(rows, np.int64)
    made = np.flatnonzero(chosen & (lives.born >= 0))
    result[lives.born[made]] = lives.size_bytes[made]
    return result


class _Sorting:
    """Sorts the blocks of one device into categories."""

    def __init__(self, seen: DeviceSnapshot, paths: _Paths, passes: _Passes) -> None:
        lives = self._lives = seen.lives
        self._paths, self._passes = paths, passes
        self._role = paths.of_block
        self._rows = len(seen.events)
        born, died = lives.born, lives.died
        self._next = np.searchsorted(passes.begin, born, side="right")
        self._crossed: Integers = np.searchsorted(passes.begin, died) - self._next
        inside = np.maximum(self._next - 1, 0)
        ends = passes.end if len(passes.end) else np.array([-1])
        self._is_inside: Flags = (self._next > 0) & (born <= ends[inside])
        self._outlives: Flags = self._is_inside & (died > ends[inside])
        self._is_cut: Flags = self._is_inside & np.append(passes.is_cut, False)[inside]
        last = np.maximum(np.searchsorted(passes.begin, died) - 1, 0)
        self._ends_inside: Flags = (self._crossed > 0) & (died <= ends[last])
        self._refused = np.flatnonzero(seen.events["kind"] == Kind.OOM)
        works = [Role.FORWARD, Role.OPTIMIZER, Role.STATE]
        active = np.flatnonzero(np.isin(paths.of_row, works))
        until = max(int(active.max(initial=-1)), int(ends[-1]), *self._refused[-1:].tolist())
        self._lasts: Flags = died > min(until, self._rows - 1)
        self._is_there: Flags = lives.size_bytes > 0
        self._categories = np.full(len(born), UNKNOWN, np.int8)
        self._is_sure: Flags = np.zeros(len(born), np.bool_)

    def result(self) -> Inferred:
        role, lives = self._role, self._lives
        self._sort_by_lives()
        is_module = role == Role.MODULE
        forward = np.sort(lives.born[role == Role.FORWARD])
        between = np.searchsorted(forward, lives.died) > np.searchsorted(forward, lives.born)
        is_used = self._lasts | (self._crossed > 0) | between
        self._put(is_module & ~self._is_inside & is_used, PARAMETER, is_sure=True)
        self._put(is_module & ~self._is_inside & ~is_used, TEMPORARY, is_sure=True)
        is_made = np.isin(role, (Role.OPTIMIZER, Role.STATE))
        is_state = is_made & (self._lasts | (self._crossed > 0) | (role == Role.STATE))
        self._put(is_state, STATE, is_sure=True)
        self._put(is_made & ~is_state, TEMPORARY, is_sure=True)
        is_bucket = (role == Role.BUCKETS) & (self._lasts | (self._crossed > 0))
        self._put(is_bucket, GRADIENT, is_sure=True)
        self._sort_by_sizes()
        has_lines = self._paths.has_lines
        return Inferred(self._categories, self._is_sure & has_lines, has_lines)

    def _put(self, chosen: Flags, category: int, *, is_sure: bool = False) -> None:
        self._categories[chosen] = category
        self._is_sure[chosen] = is_sure

    def _sort_by_lives(self) -> None:
        """Sort blocks by the phases in which they begin and end."""
        born, died = self._lives.born, self._lives.died
        outside = ~self._is_inside
        is_over = ~self._lasts | ((self._crossed == 0) & (died < self._rows))
        self._put(outside & is_over & (born >= 0), TEMPORARY, is_sure=True)
        self._put(self._is_inside & ~self._outlives, TEMPORARY, is_sure=True)
        is_held = outside & (self._crossed > 0) & (born >= 0)
        is_short = self._ends_inside | ((self._crossed == 1) & ~self._lasts)
        self._put(is_held & ~self._lasts, ACTIVATION)
        self._put(is_held & is_short, ACTIVATION, is_sure=True)
        self._put(is_held & self._lasts & (self._crossed == 1), ACTIVATION)
        before = born < 0
        self._put(before & self._ends_inside & (self._crossed == 1), ACTIVATION)
        following = np.append(self._refused, self._rows)
        is_open = outside & (self._crossed == 0) & (born >= 0)
        is_open &= died > following[np.searchsorted(self._refused, born)]
        is_open &= (self._role != Role.NOBODY) | (not self._paths.has_lines)
        self._put(is_open, ACTIVATION)
        self._ask_others(np.flatnonzero(is_open))
        is_left = is_held & self._lasts & (self._crossed > 1) & self._after_a_pass()
        self._ask_others(np.flatnonzero(is_left))

    def _ask_others(self, ids: Integers) -> None:
        """Give blocks whose lives were cut short the category of most of their kind."""
        known = np.flatnonzero(np.isin(self._categories, (ACTIVATION, TEMPORARY)) & ~self._lasts)
        kind = self._paths.kind
        key = kind[known] * 2 + (self._categories[known] == TEMPORARY)
        count = 2 * (int(kind.max(initial=-1)) + 1)
        held = np.bincount(key, self._lives.size_bytes[known], minlength=count)
        activations, others = held[0::2][kind[ids]], held[1::2][kind[ids]]
        is_told = (activations + others > 0) & held[0::2].any()  # else no pass has told any
        chosen = np.where(activations >= others, ACTIVATION, TEMPORARY).astype(np.int8)
        self._categories[ids[is_told]] = chosen[is_told]

    def _sort_by_sizes(self) -> None:
        """Separate parameters, their gradients and states if call paths do not."""
        lives, role = self._lives, self._role
        sizes = lives.requested_bytes
        weak = np.isin(role, (Role.NOBODY, Role.OTHER, Role.MADE))
        lasting = self._lasts & self._is_there & ~self._is_inside
        first = self._first_use()
        old = lasting & weak & (lives.born < first)
        if len(self._passes.begin) > 1:
            old &= self._crossed > 1
        is_parameter = self._categories == PARAMETER
        trained = np.unique(sizes[old | is_parameter])
        fits = np.isin(sizes, trained)
        out = self._outlives & _may_give(role)
        stays = self._lasts & (self._crossed > 0)
        held = [int(lives.size_bytes[out & fits & which].sum()) for which in (stays, ~stays)]
        if held[0] < held[1]:
            out &= ~stays  # a program drops its gradients, or keeps them
        is_gradient = out & (fits | (~self._lasts & ~self._is_cut))
        self._put(out & ~is_gradient, UNKNOWN)
        self._put(out & self._is_cut & ~is_gradient, TEMPORARY)
        self._put(is_gradient, GRADIENT)
        self._is_sure |= is_gradient & fits & ~self._is_cut
        self._put(
            self._paths.is_cleared & (self._is_inside | (lives.born < 0)), GRADIENT, is_sure=True
        )
        left = (lives.born < 0) & ~self._lasts & (self._categories == UNKNOWN)
        self._put(left & fits, GRADIENT)
        stays = (self._crossed > 0) | (lives.died == self._rows)
        later = lasting & weak & ~old & fits & stays & self._after_a_pass()
        self._put(later, STATE)
        # Blocks that a program made itself, without a gradient, may be anything.
        has_gradient = np.isin(sizes, np.unique(sizes[self._categories == GRADIENT]))
        self._share(np.flatnonzero(old & ((role != Role.OTHER) | has_gradient)))

    def _first_use(self) -> int:
        """Return the event at which the very first forward pass begins."""
        used = (self._categories == ACTIVATION) & (self._lives.born >= 0) & ~self._lasts
        works = used | (self._role == Role.FORWARD)
        return int(self._lives.born[works].min(initial=np.iinfo(np.int64).max))

    def _after_a_pass(self) -> Flags:
        first = self._passes.end[0] if len(self._passes.end) else np.iinfo(np.int64).max
        result: Flags = self._lives.born > first
        return result

    def _share(self, ids: Integers) -> None:
        """Give old blocks of each size to parameters first, the rest to gradients and states."""
        if not len(ids):
            return
        lives = self._lives
        ids = ids[np.lexsort((lives.address[ids], lives.born[ids]))]
        ids = self._oldest_first(ids)
        sizes, which = np.unique(lives.requested_bytes[ids], return_inverse=True)
        count = np.bincount(which)
        needed = self._gradients_of(sizes)
        nth = np.zeros(len(ids), np.int64)
        order = np.argsort(which, kind="stable")
        nth[order] = np.arange(len(ids)) - np.repeat(np.cumsum(count) - count, count)
        weight = sizes * count
        copies, kept = 1, False
        if needed.any():
            is_trained = needed > 0
            times = np.maximum(count[is_trained] // needed[is_trained], 1)
            copies = int(np.argmax(np.bincount(times, weight[is_trained])))
            parameters = np.where(is_trained, count - (copies - 1) * needed, count)
            is_own = ~is_trained & np.isin(sizes, _WORKSPACES) & (count <= _MOST_WORKSPACES)
            self._put(_flags(ids[is_own[which]], len(lives.born)), UNKNOWN)
            ids, which, nth = (each[~is_own[which]] for each in (ids, which, nth))
        else:
            # No block made in a pass outlived it: gradients were there before.
            kept = len(self._passes.begin) > 0 and bool((lives.born[ids] < 0).all())
            if kept:
                copies = _copies(count, weight)
            parameters = np.maximum(count // copies, 1)
        self._put(_flags(ids[nth < parameters[which]], len(lives.born)), PARAMETER)
        rest = nth >= parameters[which]
        is_gradient = rest & kept & (nth < 2 * parameters[which])
        self._put(_flags(ids[is_gradient], len(lives.born)), GRADIENT)
        self._put(_flags(ids[rest & ~is_gradient], len(lives.born)), STATE)

    def _oldest_first(self, ids: Integers) -> Integers:
        """Turn blocks around, sorted by address, where addresses fell as memory was taken.

        Two states of a parameter are made one after the other, and later than the parameters.
        """
        before = int((self._lives.born[ids] < 0).sum())
        sizes = self._lives.requested_bytes[ids[:before]]
        pairs = np.flatnonzero(sizes[1:] == sizes[:-1])
        weight = sizes[pairs].astype(np.float64)
        if before > 1 and weight.sum() and np.average(pairs, weights=weight) < before / 2:
            return np.concatenate([ids[:before][::-1], ids[before:]])
        return ids

    def _gradients_of(self, sizes: Integers) -> Integers:
        """Return how many gradients of each size a pass makes whose parameters are not known."""
        lives = self._lives
        made = np.flatnonzero((self._categories == GRADIENT) & self._is_inside)
        place = np.searchsorted(sizes, lives.requested_bytes[made])
        fits = sizes[np.minimum(place, len(sizes) - 1)] == lives.requested_bytes[made]
        made, place = made[fits], place[fits]
        passes = len(self._passes.begin) + 1
        keys, counts = np.unique(place * passes + self._next[made], return_counts=True)
        result = np.zeros(len(sizes), np.int64)
        np.maximum.at(result, keys // passes, counts)
        known = np.flatnonzero((self._categories == PARAMETER) & self._is_there)
        place = np.minimum(np.searchsorted(sizes, lives.requested_bytes[known]), len(sizes) - 1)
        same = sizes[place] == lives.requested_bytes[known]
        left: Integers = np.maximum(result - np.bincount(place[same], minlength=len(sizes)), 0)
        return left


def _may_give(role: NDArray[np.int8]) -> Flags:
    """Return which paths may be those of a gradient, including the program's own hooks."""
    result: Flags = np.isin(role, (Role.NOBODY, Role.OTHER, Role.MADE, Role.BACKWARD))
    return result


def _flags(ids: Integers, count: int) -> Flags:
    result = np.zeros(count, np.bool_)
    result[ids] = True
    return result


def _copies(count: Integers, weight: Integers) -> int:
    """Return how many blocks of a size belong together: parameter, gradient, states."""
    for copies in range(_MOST_COPIES, 2, -1):
        if weight[count % copies == 0].sum() >= _MOST_OF_SIZES * weight.sum():
            return copies
    return 2
