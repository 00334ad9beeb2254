"""Call sites: the places of a program that request memory, each known to the core by a number.

The core stores a number with each event of a history, the one that the thread set last
(`_core.set_site()`); this module keeps the place. Numbers are not reused by the next recording, so
that one still set in a thread never means another place.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import overrides

from gmlake.pytorch import compat
from gmlake.snapshots.capture import providers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
BETWEEN: Final = "between"

MOST_SITES: Final = 1 << 14
"""The most distinct places; at most some 30 MiB with call paths of 24 frames, 5 MiB without."""

MOST_CODES: Final = 1 << 14
"""The most functions cached as shown or hidden; some programs create functions without end."""

MOST_LABELS: Final = 1 << 12
"""The most distinct names of phases."""

MOST_FRAMES: Final = 24
"""Frames of a call path, unless a recording says otherwise."""

MOST_STEPS: Final = 1 << 16
"""Steps that labels() names: the last ones."""

_STEPS: Final = 1 << 32
"""Marks with this number or a higher one are steps, lower ones are phases."""

_HIDDEN: Final = ("_wrapped_call_impl", "_call_impl", "inner")
"""Functions of torch.nn.Module that lie between the frames of any two modules."""


class Frame(NamedTuple):
    """One frame of a call path."""

    name: str
    filename: str
    line: int

    def __str__(self) -> str:
        """Return "function  file:line"."""
        return f"{self.name}  {self.filename}:{self.line}"


class Site(NamedTuple):
    """A place of a program.

    scope: the module, as "transformer.layers.3.mlp", or the class of an optimizer; "": outside.
    phase: "forward", "backward", "optimizer", "between", or the name given to gmlake.phase(); "":
    before the first. frames: the call path, innermost first; empty where it was not recorded.
    """

    scope: str = ""
    phase: str = ""
    frames: tuple[Frame, ...] = ()

    def __str__(self) -> str:
        return " ".join(filter(None, (self.scope, self.phase and f"({self.phase})"))) or "unknown"


NOWHERE: Final = Site()
"""The place with number 0."""


class Table:
    """The sites of a recording by their numbers, and the names of its marks.

    Any thread may use it; nothing waits for a lock. When it is full, call paths are left out, then
    scopes, and `left_out` counts how often.
    """

    def __init__(self, most: int = MOST_SITES) -> None:
        self._most = most
        self._numbers: dict[tuple[str, str], int] = {("", ""): 0}
        self._paths: dict[tuple[int, ...], int] = {}
        self._sites: dict[int, Site] = {0: NOWHERE}
        self._is_hidden: dict[int, bool] = {}  # by id() of code
        self._codes: list[CodeType] = []  # of which the id is remembered, kept alive
        self._frames: dict[Frame, Frame] = {}  # each once
        self._labels: dict[str, int] = {}
        self.left_out = 0
        self.steps = 0

    def number_of(self, scope: str, phase: str) -> int:
        """Return the number of a place, 0 if the table is full."""
        number = self._numbers.get((scope, phase))
        return self._add(scope, phase) if number is None else number

    def number_at(self, base: int, frame: FrameType | None, depth: int) -> int:
        """Return the number of a place whose call path begins at a frame, going outward.

        base: its number without. depth: how many frames to keep.
        """
        path = [base]
        for outer in self._shown(frame, depth):
            path += (id(outer.f_code), outer.f_lasti)
        key = tuple(path)
        number = self._paths.get(key)
        return self._add_path(key, base, frame, depth) if number is None else number

    def sites(self) -> dict[int, Site]:
        """Return a copy of the table: the site of every number."""
        return dict(self._sites)

    # ---- marks ----------------------------------------------------------------------------------

    def label_number(self, label: str) -> int:
        """Return the number of a phase's mark; 0, "other", once there are MOST_LABELS."""
        number = self._labels.get(label)
        if number is None:
            if len(self._labels) >= MOST_LABELS:
                return 0
            number = self._labels.setdefault(label, next(_label_numbers))
        return number

    def step_number(self) -> int:
        """Return the number of the next step's mark; steps are counted from 0."""
        self.steps += 1
        return _STEPS + self.steps - 1

    def labels(self) -> dict[int, str]:
        """Return the labels of all marks by number: "forward", "step 3"; only the last steps."""
        phases = {number: label for label, number in self._labels.copy().items()}
        last = range(max(0, self.steps - MOST_STEPS), self.steps)
        return {0: "other", **phases, **{_STEPS + index: f"step {index}" for index in last}}

    # ---- additions ------------------------------------------------------------------------------

    def _add(self, scope: str, phase: str) -> int:
        if len(self._sites) >= self._most:
            self.left_out += 1
            return 0
        number = self._numbers.setdefault((scope, phase), next(_numbers))
        self._sites[number] = Site(scope, phase)
        return number

    def _add_path(self, key: tuple[int, ...], base: int, frame: FrameType | None, most: int) -> int:
        if len(self._sites) >= self._most:
            self.left_out += 1
            return base
        shown = list(self._shown(frame, most))
        self._codes += [outer.f_code for outer in shown]
        described = map(_describe, shown)
        frames = tuple(self._frames.setdefault(one, one) for one in described)
        number = self._paths.setdefault(key, next(_numbers))
        self._sites[number] = self._sites.get(base, NOWHERE)._replace(frames=frames)
        return number

    def _shown(self, frame: FrameType | None, most: int) -> Iterator[FrameType]:
        """Yield the innermost frames that are worth showing."""
        hidden = self._is_hidden
        while frame is not None and most:
            code = frame.f_code
            is_hidden = hidden.get(id(code))
            if is_hidden is None:
                is_hidden = _is_plumbing(code)
                if len(hidden) < MOST_CODES:
                    self._codes.append(code)
                    hidden[id(code)] = is_hidden
            if not is_hidden:
                most -= 1
                yield frame
            frame = frame.f_back


_PLUMBING: Final = ("torch/overrides.py", "torch/utils/_device.py")


def _is_plumbing(code: CodeType) -> bool:
    is_call = code.co_name in _HIDDEN and code.co_filename.endswith("torch/nn/modules/module.py")
    return is_call or code.co_filename.endswith(_PLUMBING)


def _describe(frame: FrameType) -> Frame:
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on
    return Frame(name, code.co_filename, frame.f_lineno or 0)


_numbers = itertools.count(1)
_label_numbers = itertools.count(1)
_current = Table()


def current() -> Table:
    """Return the table of the recording that is on, or of the last one."""
    return _current


def renew() -> Table:
    """Begin with an empty table, and return it."""
    global _current  # noqa: PLW0603
    _current = Table()
    return _current


def table() -> dict[int, Site]:
    """Return a copy of the sites of the recording that is on, or of the last one, by number."""
    return _current.sites()


def labels() -> dict[int, str]:
    """Return the labels of that recording's marks by number."""
    return _current.labels()


providers.sites, providers.labels = table, labels


# ---- call paths: taken in Python, right before PyTorch runs an operator


class CallPaths(overrides.TorchFunctionMode):
    """Sets the site of the calling thread to the call path of each PyTorch function that it calls.

    table: where numbers come from. base: returns the number of the thread's place. set_site: tells
    the core. depth: how many frames to keep.

    It sees only the thread that starts it, and no compiled code.
    """

    def __init__(
        self,
        table: Table,
        base: Callable[[], int],
        set_site: Callable[[int], object],
        depth: int,
    ) -> None:
        super().__init__()
        self._table = table
        self._base = base
        self._set_site = set_site
        self._depth = depth
        self._is_on = False

    def start(self) -> None:
        """Start observing the calling thread."""
        self._is_on = True
        self._update_modes()

    def stop(self) -> None:
        """Stop observing; called in another thread than start(), it stays in place, idle."""
        self._is_on = False
        self._update_modes()

    def _update_modes(self) -> None:
        """Stay among this thread's modes while on, below the others, which pop the top when done.

        Remove idle ones: PyTorch takes a mode off while that runs, and an interrupt may have put
        one back late.
        """
        modes = compat.function_modes()
        wanted = [mode for mode in modes if mode is not self and not _is_idle(mode)]
        if self._is_on:  # that of torch.set_default_device() has to stay at the bottom
            wanted.insert(1 if wanted and wanted[0] is compat.default_device_mode() else 0, self)
        if wanted == modes:
            return
        try:
            compat.set_function_modes(wanted)
        except BaseException:  # an interrupt, which must not cost the program its own modes
            compat.set_function_modes(wanted)
            raise

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 (PyTorch's own signature)
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Call the function from the place that calls it."""
        arguments = kwargs or {}
        is_cheap = getattr(func, "__name__", "") in _CHEAP  # a program's own may have none
        if not self._is_on or is_cheap or torch.compiler.is_compiling():
            return func(*args, **arguments)
        number = self._table.number_at(self._base(), sys._getframe(1), self._depth)  # noqa: SLF001
        self._set_site(number)
        try:
            return func(*args, **arguments)
        finally:
            self._set_site(self._base())


def _is_idle(mode: object) -> bool:
    return isinstance(mode, CallPaths) and not mode._is_on  # noqa: SLF001


_CHEAP = frozenset(("__get__", "__set__"))  # attributes, which ask for no memory
