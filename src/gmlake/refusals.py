"""Recorded refusals: the state of memory then, and which policies would have served."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.errors import OutOfMemoryError
from gmlake.lake import Lake
from gmlake.printable import printable
from gmlake.replaying import Requests
from gmlake.snapshots.moments import Playback
from gmlake.snapshots.sites import OwnLines
from gmlake.snapshots.traces import of_trace
from gmlake.trace.layout import LARGEST_SIZE, Kind
from gmlake.trace.trace import Trace
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gmlake.snapshots.model import DeviceSnapshot
    from gmlake.trace.layout import Records

MOST_REFUSALS: Final = 3
"""Refusals of one trace that are asked again: later ones of a program are much the same."""


@dataclass(frozen=True)
class Answer:
    """The answer of one policy to a request that was refused. Sizes in bytes.

    is_served: whether it fits. held_bytes: the bytes the policy held then, with the request if it
    fits. refused_before: requests that the policy had refused until then.
    """

    policy: str
    is_served: bool
    held_bytes: int
    refused_before: int = 0


@dataclass(frozen=True)
class Refusal:
    """A request that PyTorch refused, and the state of memory then. Sizes in bytes.

    event: its row among the trace's events. asked_at: the user's line that asked. pool: the name of
    the private pool that it was for. most_held: who held most of what was live, in words. Each is
    "" if it is not known, or there is none. held_bytes: what
    PyTorch held from the device; 0 if the recording does not tell. free_bytes: of it, in pieces
    that serve at most largest_free_bytes. device_free_bytes: what the device had left.
    others_bytes: what neither PyTorch held nor was left; 0 if it is not known. asked_bytes: the
    memory for which the policies answered.
    """

    event: int
    size_bytes: int
    stream: int
    live_bytes: int
    held_bytes: int
    free_bytes: int
    largest_free_bytes: int
    device_free_bytes: int
    others_bytes: int = 0
    asked_at: str = ""
    pool: str = ""
    most_held: str = ""
    answers: tuple[Answer, ...] = ()
    asked_bytes: int = 0

    @property
    def is_limited(self) -> bool:
        """Whether the device had enough left, so that something else set the limit."""
        return self.device_free_bytes >= self.size_bytes

    @property
    def capacity_bytes(self) -> int:
        """The most that PyTorch could have held, as far as the recording tells; else 0."""
        if not self.held_bytes:
            return 0
        return self.held_bytes + (0 if self.is_limited else self.device_free_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure."""
        return asdict(self) | {"capacity_bytes": self.capacity_bytes}

    def sentences(self) -> list[str]:
        """Describe the refusal, and the answer of each policy."""
        said = f"refused at event {self.event:,}: {format_size(self.size_bytes)}"
        said += f", asked for at {printable(self.asked_at)}" if self.asked_at else ""
        said += f", in {self.pool}" if self.pool else ""
        said += f"; live then: {format_size(self.live_bytes)}"
        if self.held_bytes:
            said += (
                f" of {format_size(self.held_bytes)} held, {format_size(self.free_bytes)} free in "
            )
            said += f"pieces that serve at most {format_size(self.largest_free_bytes)}"
        said += f"; {format_size(self.device_free_bytes)} left on the device"
        if self.others_bytes:
            said += f", others have {format_size(self.others_bytes)} of it"
        if self.is_limited:
            said += ", so a limit of the program's refused it"
        return [said, *filter(None, [printable(self.most_held)])]

    def verdict(self) -> str:
        """Say in one sentence which policies would have served it; "" if none was asked."""
        if not self.answers:
            said = "the recording has no requests from before, so no policy can be asked"
            return said if self.held_bytes else ""
        served = [answer for answer in self.answers if answer.is_served]
        refused = [answer.policy for answer in self.answers if not answer.is_served]
        within = f"in the same {format_size(self.asked_bytes)}"
        said = ""
        if served:
            each = (
                f"{answer.policy} ({format_size(self.asked_bytes - answer.held_bytes)} to spare)"
                for answer in served
            )
            said = f"would have been served {within} by: {', '.join(each)}"
        if not refused:
            return said
        by = f"by: {', '.join(refused)}"
        return f"{said}; refused {by}" if said else f"refused {within} {by}"


def refusals_of(source: Trace | DeviceSnapshot, most: int | None = None) -> list[Refusal]:
    """Return the first recorded refusals, in the order they happened, without answers."""
    rows = np.flatnonzero(_requests(source)["kind"] == Kind.OOM)[:most]
    if not len(rows):
        return []
    seen = of_trace(source) if isinstance(source, Trace) else source
    playback = Playback(seen, OwnLines({}), rows=rows)
    found = []
    for moment, row in enumerate(rows.tolist()):
        state = playback.state_at(moment)
        found.append(
            Refusal(
                event=row,
                size_bytes=state.refused_bytes,
                stream=int(seen.events["stream"][row]),
                live_bytes=state.live_bytes,
                held_bytes=state.held_bytes or 0,
                free_bytes=state.free_bytes or 0,
                largest_free_bytes=state.largest_bytes or 0,
                device_free_bytes=state.left_bytes,
                others_bytes=state.others_bytes,
            )
        )
    return found


def others_of(trace: Trace) -> int:
    """Return what others than PyTorch had of the device; 0 if the recording does not tell.

    As it was told with the memory at the end; else the most that it was at a refusal.
    """
    told = trace.told_others_bytes
    if told is not None:
        return told
    if not trace.others_bytes(0, 0):
        return 0
    return max((refusal.others_bytes for refusal in refusals_of(trace)), default=0)


def _requests(source: Trace | DeviceSnapshot) -> Records:
    return source.requests if isinstance(source, Trace) else source.events


def ask_again(
    trace: Trace,
    refusal: Refusal,
    policies: Sequence[str],
    capacity: int | None = None,
    **knobs: int | str,
) -> Refusal:
    """Return the refusal with the answer of each policy, given the memory PyTorch could have held.

    capacity: of another device, in bytes.

    Each replays the earlier requests on a device of that size, then the refused one. No answers if
    the recording does not tell how much PyTorch held, or has no request before: then memory would
    not be fragmented.
    """
    requests = trace.requests[: refusal.event]
    asked_bytes = capacity or refusal.capacity_bytes
    if not asked_bytes or not (requests["kind"] == Kind.ALLOC).any():
        return refusal
    before = Requests(replace(trace, requests=requests))
    settings: dict[str, Any] = dict(knobs)
    answers = []
    for policy in policies:
        with Lake("sim", policy, asked_bytes, **settings) as lake:
            totals, _, _ = before.replay(lake, policy)
            is_served = False
            with suppress(OutOfMemoryError):
                lake.allocate(min(refusal.size_bytes, LARGEST_SIZE), refusal.stream)
                is_served = totals["refused"] == 0
            held_bytes = lake.stats()["reserved_bytes"]
            answers.append(Answer(policy, is_served, held_bytes, totals["refused"]))
    return replace(refusal, answers=tuple(answers), asked_bytes=asked_bytes)
