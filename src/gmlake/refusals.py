"""Recorded refusals: the state of memory then, and which policies would have served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from gmlake.lake import Lake
from gmlake.printable import printable
from gmlake.replaying import Requests, with_refused
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.snapshots.moments import Playback
from gmlake.snapshots.sites import OwnLines
from gmlake.snapshots.situations import Situation, has_refused, refused_row
from gmlake.snapshots.traces import of_trace
from gmlake.trace.layout import Kind, Records
from gmlake.trace.trace import Trace
from gmlake.units import format_size

MOST_REFUSALS: Final = 3
"""Refusals of one trace that are asked again: later ones of a program are much the same."""


@dataclass(frozen=True)
class Answer:
    """The answer of one policy to a request that was refused. Sizes in bytes.

    is_served: whether it fits. held_bytes: the bytes the policy held then, with the request if it
    fits. is_recorded: this policy refused it in that memory when it was recorded, so nothing was
    replayed.
    """

    policy: str
    is_served: bool
    held_bytes: int
    is_recorded: bool = False


@dataclass(frozen=True)
class Refusal:
    """A request that was refused, and the state of memory then. Sizes in bytes.

    event: its row among the trace's events. situation: why, None if the recording does not tell
    what was held. asked_at: the user's line that asked. pool: the name of the private pool that it
    was for. most_held: who held most of what was live, in words. Each is "" if it is not known, or
    there is none. asked_bytes: the memory for which the policies answered.
    """

    event: int
    size_bytes: int
    stream: int
    live_bytes: int
    situation: Situation | None = None
    asked_at: str = ""
    pool: str = ""
    most_held: str = ""
    answers: tuple[Answer, ...] = ()
    asked_bytes: int = 0

    @property
    def others_bytes(self) -> int:
        """What others than the process's allocators held of the device; 0 if it is not known."""
        return self.situation.others_bytes if self.situation else 0

    @property
    def capacity_bytes(self) -> int:
        """The most that could have been held, as far as the recording tells; else 0."""
        return self.situation.capacity_bytes if self.situation else 0

    def to_dict(self) -> dict[str, Any]:
        """Return every figure."""
        own = {name: value for name, value in vars(self).items() if name != "situation"}
        return own | {
            "situation": self.situation.to_dict() if self.situation else None,
            "answers": [asdict(answer) for answer in self.answers],
            "others_bytes": self.others_bytes,
            "capacity_bytes": self.capacity_bytes,
        }

    def sentences(self) -> list[str]:
        """Describe the refusal: the verdict first, then the figures, then who holds most."""
        said = f"refused at event {self.event:,}: {format_size(self.size_bytes)}"
        said += f", asked for at {printable(self.asked_at)}" if self.asked_at else ""
        said += f", in {self.pool}" if self.pool else ""
        if self.situation is None:
            return [f"{said}; live then: {format_size(self.live_bytes)}"]
        told = [f"{said}: {self.situation.verdict}", self.situation.figures]
        return [*told, *filter(None, [printable(self.most_held)])]

    def verdict(self) -> str:
        """Say in one sentence which policies would have served it; "" if none was asked."""
        if not self.answers:
            said = "the recording has no requests from before, so no policy can be asked"
            return said if self.capacity_bytes else ""
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


def refusals_of(source: Trace | DeviceSnapshot, chosen: slice = slice(None)) -> list[Refusal]:
    """Return the recorded refusals, or those of a slice of them, as they happened, unanswered."""
    rows = np.flatnonzero(_requests(source)["kind"] == Kind.OOM)[chosen]
    if not len(rows):
        return []
    seen = of_trace(source) if isinstance(source, Trace) else source
    playback = Playback(seen, OwnLines({}), rows=rows)
    found = []
    for moment, row in enumerate(rows.tolist()):
        state, event = playback.state_at(moment), seen.events[row]
        size_bytes, stream = int(event["size_bytes"]), int(event["stream"])
        found.append(Refusal(row, size_bytes, stream, state.live_bytes, state.situation))
    return found


def others_of(trace: Trace) -> int:
    """Return what others than PyTorch had of the device; 0 if the recording does not tell.

    As it was told with the memory at the end; else the most that it was at a refusal.
    """
    told = trace.told_others_bytes
    if told is not None:
        return told
    if not trace.device_bytes:
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
    requests = trace.requests[: refusal.event + 1]
    asked_bytes = capacity or refusal.capacity_bytes
    if not asked_bytes or not (requests["kind"] == Kind.ALLOC).any():
        return refusal
    requests = requests[
        (requests["kind"] != Kind.OOM) | (np.arange(len(requests)) == refusal.event)
    ]
    asked = Requests(with_refused(replace(trace, requests=requests)))
    settings: dict[str, Any] = dict(knobs)
    is_told = refusal.event == refused_row(trace)
    answers = []
    for policy in policies:
        if is_told and has_refused(trace, policy, asked_bytes):
            answers.append(Answer(policy, is_served=False, held_bytes=0, is_recorded=True))
            continue
        with Lake("sim", policy, asked_bytes + trace.asleep_bytes, **settings) as lake:
            refused = asked.replay(lake, policy)[0]["refused"]
            held_bytes = lake.stats()["reserved_bytes"]
            answers.append(Answer(policy, refused == 0, held_bytes))
    return replace(refusal, answers=tuple(answers), asked_bytes=asked_bytes)
