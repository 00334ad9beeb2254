"""What a block of gmlake.diagnose() wrote down, in a form that tests compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gmlake.diagnosis.object_layout import READS, TOUCHES, WRITES, ApiKind
from gmlake.diagnosis.operators import diagnose

if TYPE_CHECKING:
    from collections.abc import Callable

    from gmlake.diagnosis import ObjectTrace

FLAGS = {READS: "R", WRITES: "W", TOUCHES: "T"}


@dataclass(frozen=True)
class Seen:
    """One access: the operator, its kind, R, W or T, and how often each element is accessed."""

    label: str
    kind: str
    flag: str
    counts: tuple[int, ...]


class Recorded:
    """The trace of the CPU, or of another device."""

    def __init__(self, trace: ObjectTrace) -> None:
        self.trace = trace

    def number(self, name: str) -> int:
        """The only object of that name."""
        (number,) = [at for at, known in enumerate(self.trace.names) if known == name]
        return number

    def accesses(self, name: str) -> list[Seen]:
        """Every access to the object of that name, in order."""
        wanted = self.number(name)
        trace, found = self.trace, []
        for api, row in enumerate(trace.apis):
            first = int(row["first_access"])
            for access in trace.accesses[first : first + int(row["access_count"])]:
                if access["object"] == wanted:
                    kind = ApiKind(int(row["kind"])).name.lower()
                    flag = FLAGS[int(access["flags"])]
                    found.append(Seen(trace.label(api), kind, flag, self._counts(access)))
        return found

    def flags(self, name: str) -> list[tuple[str, str]]:
        """Operator and R, W or T of every access to the object of that name."""
        return [(seen.label, seen.flag) for seen in self.accesses(name)]

    def apis(self, *, with_memory: bool = False) -> list[tuple[str, str]]:
        """Kind and operator of every API, allocations and frees only if asked for."""
        every = [
            (ApiKind(int(row["kind"])).name.lower(), self.trace.label(api))
            for api, row in enumerate(self.trace.apis)
        ]
        return every if with_memory else [one for one in every if one[0] not in ("alloc", "free")]

    def _counts(self, access: Any) -> tuple[int, ...]:
        row = self.trace.objects[int(access["object"])]
        item = int(row["element_bytes"])
        counts = [0] * (int(row["size_bytes"]) // item)
        if not access["range_count"]:
            return (1,) * len(counts)
        first = int(access["first_range"])
        for run in self.trace.ranges[first : first + int(access["range_count"])]:
            offset, size, stride, repeat, weight = (int(value) for value in run)
            for start in range(offset, offset + stride * repeat, stride):
                for place in range(start // item, (start + size) // item):
                    counts[place] += weight
        return tuple(counts)


def record(function: Callable[[], object], device: str = "cpu", **options: Any) -> Recorded:
    """Run a function in a block and return what was seen on a device."""
    with diagnose(whole_program=True, **options) as report:
        function()
    return Recorded(report.devices[device].trace)
