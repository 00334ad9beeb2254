"""The texts of each pattern: its name, its colour, and the change for a finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal

from gmlake.diagnosis import _diagnosis
from gmlake.snapshots.frames import named_frame
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.diagnosis.findings import Call, Finding
    from gmlake.diagnosis.object_trace import Place


class Pattern(IntEnum):
    """`gml_pattern`: the ten of Lin, Zhou and Su, "DrGPUM", ASPLOS 2023."""

    EARLY_ALLOCATION = 0
    LATE_DEALLOCATION = 1
    REDUNDANT_ALLOCATION = 2
    UNUSED_ALLOCATION = 3
    MEMORY_LEAK = 4
    TEMPORARY_IDLENESS = 5
    DEAD_WRITE = 6
    OVERALLOCATION = 7
    NON_UNIFORM_FREQUENCY = 8
    STRUCTURED_ACCESS = 9

    @property
    def words(self) -> str:
        """The pattern's name, as "early allocation"."""
        return _diagnosis.patterns()[self]

    @staticmethod
    def of(text: str) -> Pattern:
        """Return the pattern of a name, with "-", "_" or spaces. Raises ValueError."""
        wanted = _plain(text)
        for pattern in Pattern:
            if wanted in {_plain(pattern.words), _plain(pattern.name)}:
                return pattern
        known = ", ".join(pattern.words for pattern in Pattern)
        raise ValueError(f"no pattern is called {text[:60]!r}; there are {known}")


def _plain(text: str) -> str:
    return " ".join(text.lower().replace("-", " ").replace("_", " ").split())


GUIDANCE: Final = ("", "easy: the rest is in one piece", "hard: the rest is scattered")
"""Table 2 of the paper, by `gml_guidance`."""


def line_of(place: Place) -> str:
    """Return where the program was as "file:line", else its module; "" if it is not known.

    The line is the user's own where the call path has one, else a library's.
    """
    return named_frame(place.frames).rpartition("  ")[2] or place.scope


def at(place: Place) -> str:
    """Return " (file:line)", or nothing."""
    line = line_of(place)
    return f" ({line})" if line else ""


def calls(count: int) -> str:
    """Return "1 call", "2 calls"."""
    return "1 call" if count == 1 else f"{count:,} calls"


def _call(call: Call | None) -> str:
    return "the end" if call is None else f"`{call.label}`{at(call.place)}"


# ---- one change for each pattern


def _early(it: Finding) -> str:
    return (
        f"allocate `{it.object_name}`{at(it.place)} right before {_call(it.to_api)}, "
        f"{calls(it.distance)} later"
    )


def _late(it: Finding) -> str:
    than = line_of(it.to_api.place) if it.to_api is not None else ""
    return (
        f"free `{it.object_name}` right after {_call(it.from_api)}, {calls(it.distance)} earlier"
        + (f" than in {than}" if than else "")
    )


def _redundant(it: Finding) -> str:
    return (
        f"let `{it.object_name}`{at(it.place)} have the memory of `{it.other_name}` from "
        f"{_call(it.to_api)} on: nothing uses it after {_call(it.from_api)}"
    )


def _unused(it: Finding) -> str:
    return f"do not allocate `{it.object_name}`{at(it.place)}: nothing uses it"


def _leak(it: Finding) -> str:
    if it.from_api is None or it.is_unused:
        return f"free `{it.object_name}`{at(it.place)}: nothing does, and nothing uses it"
    return f"free `{it.object_name}` right after {_call(it.from_api)}, its last use: nothing does"


def _idle(it: Finding) -> str:
    return (
        f"copy `{it.object_name}` ({format_size(it.bytes)}) out to the host after "
        f"{_call(it.from_api)} and back before {_call(it.to_api)}, {calls(it.distance)} later; or "
        "free it and make it again"
    )


def _dead(it: Finding) -> str:
    if it.bytes < it.size_bytes:  # the rest of what it writes may be needed
        what = f"let {_call(it.from_api)} leave out {format_size(it.bytes)} of `{it.object_name}`"
        return f"{what}: {_call(it.to_api)} writes them again before anything reads them"
    return (
        f"leave out {_call(it.from_api)}: {_call(it.to_api)} writes {format_size(it.bytes)} of "
        f"`{it.object_name}` again before anything reads them"
    )


def _over(it: Finding) -> str:
    least = format_size(it.size_bytes - it.bytes)
    name = f"`{it.object_name}`{at(it.place)}"
    told = f"only {it.percent:.3g} % of its elements are ever used"
    if it.guidance == GUIDANCE[-1]:
        return f"pack what is used of {name} into {least}: {told}, scattered over all of it"
    return f"allocate {least} for {name}: {told}"


def _uneven(it: Finding) -> str:
    told = f"how often they are used varies by {it.percent:.3g} %"
    if it.from_api is not None and it.to_api is not None and it.from_api != it.to_api:
        return (
            f"keep the most used slices of `{it.object_name}` in fast memory, from "
            f"{_call(it.from_api)} to {_call(it.to_api)}: {told}"
        )
    return (
        f"keep the elements of `{it.object_name}` that {_call(it.from_api)} uses most in shared "
        f"memory or cache: {told}"
    )


def _structured(it: Finding) -> str:
    return (
        f"allocate each of the {it.pieces:,} slices of `{it.object_name}`{at(it.place)} right "
        f"before its first use and free it after its last, between {_call(it.from_api)} and "
        f"{_call(it.to_api)}"
    )


@dataclass(frozen=True)
class _Kind:
    """The texts and looks of a pattern.

    change: the change for a finding. where: the call whose line to change; "": the object's line.
    wasted: the object is live but unused between the calls; otherwise its insides are shown.
    ease: the easiest change has 0; None: it does not simply save memory.
    """

    change: Callable[[Finding], str]
    colour: str
    where: Literal["", "from_api", "to_api"] = ""
    wasted: bool = True
    ease: int | None = None


_KINDS: Final = {
    Pattern.EARLY_ALLOCATION: _Kind(_early, "#dd9d1a", ease=3),
    Pattern.LATE_DEALLOCATION: _Kind(_late, "#d1602f", "to_api", ease=2),
    Pattern.REDUNDANT_ALLOCATION: _Kind(_redundant, "#8f6fd1"),
    Pattern.UNUSED_ALLOCATION: _Kind(_unused, "#d8323c", ease=0),
    Pattern.MEMORY_LEAK: _Kind(_leak, "#c94f5b", "from_api", ease=1),
    Pattern.TEMPORARY_IDLENESS: _Kind(_idle, "#56b4e9", "from_api"),
    Pattern.DEAD_WRITE: _Kind(_dead, "#a3a01c", "from_api"),
    Pattern.OVERALLOCATION: _Kind(_over, "#1f9e77", wasted=False, ease=4),
    Pattern.NON_UNIFORM_FREQUENCY: _Kind(_uneven, "#5f8c8a", "from_api", wasted=False),
    Pattern.STRUCTURED_ACCESS: _Kind(_structured, "#c06fa6", wasted=False, ease=5),
}
WASTED: Final = tuple(pattern for pattern, kind in _KINDS.items() if kind.wasted)
INSIDE: Final = tuple(pattern for pattern, kind in _KINDS.items() if not kind.wasted)


def colours() -> dict[str, str]:
    """Return the colour of each pattern by name."""
    return {pattern.words: kind.colour for pattern, kind in _KINDS.items()}


def ease_of(pattern: Pattern) -> int | None:
    """Return 0 for the easiest change; None for one that does not simply save memory."""
    return _KINDS[pattern].ease


def change_of(finding: Finding) -> str:
    """Return one concrete change, as a sentence without a full stop."""
    return _KINDS[finding.kind].change(finding)


def where_of(finding: Finding) -> Place:
    """Return where to change the program; the object's place if that is not known."""
    name = _KINDS[finding.kind].where
    call: Call | None = getattr(finding, name) if name else None
    return call.place if call is not None and line_of(call.place) else finding.place
