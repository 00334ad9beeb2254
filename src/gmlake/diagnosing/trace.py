"""A trace of objects: what a program did to each of its objects in a device's memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.diagnosing.layout import ACCESS, API, OBJECT, RANGE
from gmlake.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.diagnosing.notes import Notes
    from gmlake.trace.layout import Records

_TABLES: Final = (("apis", API), ("objects", OBJECT), ("accesses", ACCESS), ("ranges", RANGE))


@dataclass(frozen=True)
class Place:
    """Where a program is.

    frames: the call path, the innermost first, each as "function  file:line".
    scope: the name of the module whose work it is, "" where there is none.
    """

    frames: tuple[str, ...] = ()
    scope: str = ""


@dataclass(frozen=True, eq=False)
class ObjectTrace:
    """APIs in order of invocation, the objects that they access, and where the program was.

    apis, objects, accesses, ranges: arrays of the records in gmlake.diagnosing.layout; sizes and
        offsets are in bytes. An object's `tag` is the number of its place.
    names: of each object, "" where it has none.
    labels: the different names of APIs; label_of: the number of each API's.
    places: the different places, the first of them nowhere; place_of: the number of each API's.
    name: of the trace, for reports.
    notes: what PyTorch knows beside; None of another program, and of a trace from a file.
    """

    apis: Records
    objects: Records
    accesses: Records
    ranges: Records
    names: tuple[str, ...]
    labels: tuple[str, ...]
    label_of: Records
    places: tuple[Place, ...] = (Place(),)
    place_of: Records = field(default_factory=lambda: np.zeros(0, np.uint32))
    name: str = ""
    notes: Notes | None = None

    def __post_init__(self) -> None:
        """Check that the tables fit together; TraceError where not. The rest is the core's."""
        for attribute, dtype in _TABLES:
            if getattr(self, attribute).dtype != dtype:
                raise TraceError(f"the {attribute} are not records of {dtype.itemsize} bytes")
        if not len(self.place_of):
            object.__setattr__(self, "place_of", np.zeros(len(self.apis), np.uint32))
        if len(self.names) != len(self.objects):
            raise TraceError(f"{len(self.names)} names for {len(self.objects)} objects")
        _check_numbers(self.label_of, len(self.apis), len(self.labels), "labels")
        _check_numbers(self.place_of, len(self.apis), len(self.places), "places")
        _check_numbers(self.objects["tag"], len(self.objects), len(self.places), "places")

    @cached_property
    def api_of_access(self) -> Records:
        """The number of the API that each access is of."""
        found: Records = np.repeat(np.arange(len(self.apis)), self.apis["access_count"])
        return found

    def label(self, api: int) -> str:
        """Return the name of an API."""
        return self.labels[int(self.label_of[api])]

    def place(self, api: int) -> Place:
        """Return where the program was when it called an API."""
        return self.places[int(self.place_of[api])]

    def object_place(self, number: int) -> Place:
        """Return where the program was when it made an object."""
        return self.places[int(self.objects["tag"][number])]

    def object_name(self, number: int) -> str:
        """Return an object's name, or "object 7"."""
        return self.names[number] or f"object {number}"

    def save(self, path: str | Path) -> None:
        """Write a file, usually named *.gmobjects. Raises OSError, TraceError for too much."""
        from gmlake.diagnosing.files import save

        save(self, path)

    @staticmethod
    def load(path: str | Path) -> ObjectTrace:
        """Read such a file. Raises TraceError, with the file's name, for anything else."""
        from gmlake.diagnosing.files import load

        return load(path)


def _check_numbers(numbers: Records, rows: int, entries: int, what: str) -> None:
    if len(numbers) != rows:
        raise TraceError(f"{len(numbers)} numbers of {what} for {rows} rows")
    if rows and int(numbers.max()) >= entries:
        raise TraceError(f"a number above those of the {entries} {what}")
