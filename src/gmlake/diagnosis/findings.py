"""The findings of a diagnosis, each with its line, its bytes and one change; groups of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gmlake.diagnosis.object_layout import NO_API, NO_OBJECT, ApiKind
from gmlake.diagnosis.words import GUIDANCE, Pattern, change_of, line_of, where_of

if TYPE_CHECKING:
    from gmlake.diagnosis.object_trace import ObjectTrace, Place
    from gmlake.trace.layout import Records

_ABOUT_ONE = (ApiKind.ALLOC, ApiKind.FREE)


@dataclass(frozen=True)
class Call:
    """One API: its number in the trace, its name, and where the program called it.

    The name of an allocation or a free includes that of its object.
    """

    api: int
    label: str
    place: Place

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"api": self.api, "label": self.label, **place_dict(self.place)}


@dataclass(frozen=True)
class Finding:
    """One inefficiency. Sizes are in bytes.

    number: in Diagnosis.findings. kind: which pattern.
    object, object_name, size_bytes: which object. place: where it was made.
    bytes: the size of the object, in most cases, or of the part of it that is wasted.
    saving_bytes: how much lower the highest peak is if this alone is fixed, by replaying the trace.
    peak_bytes: how much of the object is live at the highest peak that it is part of, or 0.
    distance: between the two APIs, in times of the trace.
    from_api, to_api: the two APIs that it lies between; None if there is none.
    other, other_name: of a redundant allocation: the object whose memory is free.
    guidance: of an overallocation: whether it is easy or hard to fix; else "".
    percent: of an overallocation: elements that are accessed; of a non-uniform frequency: the
        coefficient of variation; of structured access: the largest slice; else 0.
    fragmented_percent: of an overallocation: how scattered the unaccessed bytes are.
    pieces: of structured access: slices.
    is_unused: nothing accesses the object at all.
    """

    number: int
    kind: Pattern
    object: int
    object_name: str
    size_bytes: int
    place: Place
    bytes: int
    saving_bytes: int
    peak_bytes: int
    distance: int
    from_api: Call | None
    to_api: Call | None
    other: int | None = None
    other_name: str = ""
    guidance: str = ""
    percent: float = 0.0
    fragmented_percent: float = 0.0
    pieces: int = 0
    is_unused: bool = False

    @property
    def pattern(self) -> str:
        """The pattern in words, as "early allocation"."""
        return self.kind.words

    @property
    def change(self) -> str:
        """One concrete change, as a sentence."""
        return change_of(self)

    @property
    def where(self) -> Place:
        """Where to change the program; the object's place if that is not known."""
        return where_of(self)

    @property
    def line(self) -> str:
        """The line to change, as "file:line"; "" if it is not known."""
        return line_of(self.where)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON, without fields that do not apply."""
        told: dict[str, Any] = {
            "pattern": self.pattern,
            "object": self.object,
            "object_name": self.object_name,
            "size_bytes": self.size_bytes,
            **place_dict(self.place),
            "line": self.line,
            "bytes": self.bytes,
            "saving_bytes": self.saving_bytes,
            "peak_bytes": self.peak_bytes,
            "distance": self.distance,
            "from": None if self.from_api is None else self.from_api.to_dict(),
            "to": None if self.to_api is None else self.to_api.to_dict(),
            "change": self.change,
        }
        if self.other is not None:
            told.update(other=self.other, other_name=self.other_name)
        if self.guidance:
            told.update(guidance=self.guidance, fragmented_percent=self.fragmented_percent)
        if self.percent:
            told["percent"] = self.percent
        if self.pieces:
            told["pieces"] = self.pieces
        return told


@dataclass(frozen=True)
class Group:
    """Findings of one pattern and one place, as of the layers of a model.

    example: the one of them that saves most. numbers: all of them, in Diagnosis.findings.
    bytes: of all together. saving_bytes: of the highest peak, if all of them are fixed at once.
    """

    example: Finding
    numbers: tuple[int, ...] = field(repr=False)
    bytes: int
    saving_bytes: int

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; the example by its number."""
        return {
            "pattern": self.example.pattern,
            "line": self.example.line,
            "count": self.count,
            "bytes": self.bytes,
            "saving_bytes": self.saving_bytes,
            "example": self.example.number,
            "findings": list(self.numbers),
        }


def place_dict(place: Place) -> dict[str, Any]:
    """Return a place for JSON."""
    return {"scope": place.scope, "frames": list(place.frames)}


class FindingReader:
    """Makes Finding objects from records."""

    def __init__(self, trace: ObjectTrace, records: Records, lives: Records) -> None:
        """Read `records` of `trace`, whose objects live as `lives` says."""
        self._trace = trace
        self._records = records
        self._lives = lives

    def finding(self, number: int) -> Finding:
        """Return one finding."""
        row = self._records[number]
        one, other = int(row["object"]), int(row["other"])
        return Finding(
            number=number,
            kind=Pattern(int(row["pattern"])),
            object=one,
            object_name=self._trace.object_name(one),
            size_bytes=int(self._trace.objects["size_bytes"][one]),
            place=self._trace.object_place(one),
            bytes=int(row["bytes"]),
            saving_bytes=int(row["saving_bytes"]),
            peak_bytes=int(row["peak_bytes"]),
            distance=int(row["distance"]),
            from_api=self.call(int(row["from_api"])),
            to_api=self.call(int(row["to_api"])),
            other=None if other == NO_OBJECT else other,
            other_name="" if other == NO_OBJECT else self._trace.object_name(other),
            guidance=GUIDANCE[int(row["guidance"])],
            percent=float(row["percent"]),
            fragmented_percent=float(row["fragmented_percent"]),
            pieces=int(row["pieces"]),
            is_unused=not self._lives["access_count"][one],
        )

    def call(self, api: int) -> Call | None:
        """Return an API of the trace; None for NO_API."""
        if api == NO_API:
            return None
        label = self._trace.label(api)
        row = self._trace.apis[api]
        if row["kind"] in _ABOUT_ONE:
            label = f"{label} {self._trace.object_name(int(row['object']))}"
        return Call(api, label, self._trace.place(api))

    def groups(self) -> list[list[int]]:
        """Return the numbers of the findings of each pattern and place, in order of the first."""
        if not len(self._records):
            return []
        kinds = self._object_kinds()
        keys = kinds[self._records["object"]] * len(Pattern) + self._records["pattern"]
        order = np.argsort(keys, kind="stable")
        ends = np.flatnonzero(np.diff(keys[order])) + 1
        return sorted(part.tolist() for part in np.split(order, ends))

    def _object_kinds(self) -> Records:
        """Return a number for each object, the same for those found at places that are alike."""
        trace = self._trace
        tags = trace.objects["tag"].tolist()
        scopes = [(place.frames, _without_numbers(place.scope)) for place in trace.places]
        numbers: dict[object, int] = {}
        kinds = np.zeros(len(trace.objects), np.uint64)
        for one in set(self._records["object"].tolist()):
            scope, name = scopes[tags[one]], trace.names[one]
            is_placed = any(scope)
            alike = _without_numbers(name) if is_placed else name or trace.object_name(one)
            kinds[one] = numbers.setdefault((scope, alike), len(numbers))
        return kinds


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "*", text)
