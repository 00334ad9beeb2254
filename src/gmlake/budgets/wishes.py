"""What the marks of a test wish for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gmlake.budgets.plugin import MARKS
from gmlake.standin.devices import DEFAULT, device_of
from gmlake.units import parse_size

if TYPE_CHECKING:
    import pytest

ALLOCATORS: Final = {"default": "caching", "expandable": "expandable", "gmlake": "stitch"}
"""The policies that a recording is replayed under."""


@dataclass(frozen=True)
class Wish:
    """What is wanted of one test, as the marks have it. Raises ValueError.

    limit, leaks: sizes; None: no limit. allocator: the one whose reserved memory is limited; "":
    what tensors need is. ranks: how many processes the test stands for.
    """

    limit: str | int | None = None
    device: str = DEFAULT
    allocator: str = ""
    ranks: int = 1
    leaks: str | int | None = None

    def __post_init__(self) -> None:
        for size in (self.limit, self.leaks):
            if size is not None and (type(size) not in (str, int) or parse_size(size) < 0):
                raise ValueError(f"{size!r} is not a size; write one as '6 GiB'")
        device_of(self.device)
        if self.allocator not in ("", *ALLOCATORS):
            raise ValueError(f"allocator={self.allocator!r}: there are {', '.join(ALLOCATORS)}")
        if type(self.ranks) is not int or not 1 <= self.ranks <= 1 << 16:
            raise ValueError(f"ranks={self.ranks!r}: a number from 1 to 65,536 is needed")


def wish_of(item: pytest.Item, *, is_all: bool) -> Wish | str | None:
    """Return what the marks of a test wish for, the nearest of each; None without any.

    is_all: a test without marks is wanted, too. A text says why a mark cannot be read.
    """
    memory, leaks = (item.get_closest_marker(name) for name in MARKS)
    if memory is None and leaks is None:
        return Wish() if is_all else None
    given = {}
    if memory is not None:
        given = {**dict(zip(("limit",), memory.args, strict=False)), **memory.kwargs}
    if leaks is not None:
        given["leaks"] = leaks.args[0] if leaks.args else leaks.kwargs.get("limit", "no size")
    try:
        return Wish(**given)
    except (TypeError, ValueError) as error:
        return f"a mark of this test cannot be read: {error}; there is {'; '.join(MARKS.values())}"
