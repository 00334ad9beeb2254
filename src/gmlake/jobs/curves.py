"""A curve that takes any number of steps and keeps a bounded number of points."""

from __future__ import annotations

from gmlake.jobs.summary import MOST_POINTS, Curve


class Steps:
    """The peaks of each step; once there are too many points, two become one."""

    def __init__(self) -> None:
        self._each = 1
        self._inside = 0  # steps that the last point stands for
        self._live: list[int] = []
        self._reserved: list[int] = []

    def add(self, live_bytes: int, reserved_bytes: int) -> None:
        """Add the peaks of the next step."""
        if self._inside % self._each == 0:
            if len(self._live) == MOST_POINTS:
                self._live, self._reserved = halved(self._live), halved(self._reserved)
                self._each *= 2
            self._live.append(0)
            self._reserved.append(0)
            self._inside = 0
        self._inside += 1
        self._live[-1] = max(self._live[-1], live_bytes)
        self._reserved[-1] = max(self._reserved[-1], reserved_bytes)

    def curve(self) -> Curve:
        """Return the curve so far."""
        return Curve(self._each, tuple(self._live), tuple(self._reserved))


def halved(points: list[int]) -> list[int]:
    """Return half as many points, each the higher one of two."""
    return [max(points[at : at + 2]) for at in range(0, len(points), 2)]
