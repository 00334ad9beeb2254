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
from gmlake.snapshots.peaks import lives_of
from gmlake.trace.layout import Kind
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gmlake.trace import Trace
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

    event: its row among the trace's events. asked_at: the user's line that asked. most_held: who
    held most of what was live, in words. Both are "" if they are not known. held_bytes: what
    PyTorch held from the device; 0 if the recording does not tell. largest_free_bytes: the
    largest piece of that which was free. device_free_bytes: what the device had left.
    others_bytes: what neither PyTorch held nor was left; 0 if it is not known.
    """

    event: int
    size_bytes: int
    stream: int
    live_bytes: int
    held_bytes: int
    largest_free_bytes: int
    device_free_bytes: int
    others_bytes: int = 0
    asked_at: str = ""
    most_held: str = ""
    answers: tuple[Answer, ...] = ()

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
        free_bytes = self.held_bytes - self.live_bytes
        said = f"refused at event {self.event:,}: {format_size(self.size_bytes)}"
        said += f", asked for at {printable(self.asked_at)}" if self.asked_at else ""
        said += f"; live then: {format_size(self.live_bytes)}"
        if self.held_bytes:
            said += f" of {format_size(self.held_bytes)} held, {format_size(free_bytes)} free in "
            said += f"pieces that serve at most {format_size(self.largest_free_bytes)}"
        said += f"; {format_size(self.device_free_bytes)} left on the device"
        if self.others_bytes:
            said += f", others have {format_size(self.others_bytes)} of it"
        if self.is_limited:
            said += ", so a limit of the program's refused it"
        return [said, *filter(None, [printable(self.most_held)]), *self._verdicts()]

    def _verdicts(self) -> list[str]:
        if not self.answers and self.held_bytes:
            return ["the recording has no requests from before, so no policy can be asked"]
        served = [answer for answer in self.answers if answer.is_served]
        refused = [answer.policy for answer in self.answers if not answer.is_served]
        within = f"in the same {format_size(self.capacity_bytes)}"
        said = []
        if served:
            each = (
                f"{answer.policy} ({format_size(self.capacity_bytes - answer.held_bytes)} to spare)"
                for answer in served
            )
            said.append(f"would have been served {within} by: {', '.join(each)}")
        if refused:
            said.append(f"refused {within} by: {', '.join(refused)}")
        return said


def refusals_of(trace: Trace, most: int | None = None) -> list[Refusal]:
    """Return the first recorded refusals, in the order they happened, without answers."""
    rows = np.flatnonzero(trace.requests["kind"] == Kind.OOM)[:most]
    if not len(rows):
        return []
    nowhere = np.zeros(len(trace.requests), np.uint64), np.zeros(len(trace.start_blocks), np.uint64)
    lives = lives_of(trace, *nowhere)
    found = []
    for row in map(int, rows):
        event = trace.requests[row]
        ids = lives.live_behind(row)
        if _is_the_end(trace, row):
            blocks = trace.final_blocks
            segments, used = _ranges(trace.final_segments), _ranges(blocks[blocks["is_used"]])
            largest = trace.largest_free_bytes
        else:
            starts = lives.address[ids]
            ends = starts + lives.size_bytes[ids]
            segments = _segments_at(trace, row)
            used = np.stack([np.sort(starts), np.sort(ends)], axis=1).astype(np.int64)
            largest = None
        held_bytes, left_bytes = int((segments[:, 1] - segments[:, 0]).sum()), int(event["address"])
        found.append(
            Refusal(
                event=row,
                size_bytes=int(event["size_bytes"]),
                stream=int(event["stream"]),
                live_bytes=int(lives.live_bytes[row]),
                held_bytes=held_bytes,
                largest_free_bytes=_largest_gap(segments, used) if largest is None else largest,
                device_free_bytes=left_bytes,
                others_bytes=trace.others_bytes(held_bytes, left_bytes),
            )
        )
    return found


def _is_the_end(trace: Trace, row: int) -> bool:
    """Whether the snapshot shows the state at the refusal; it counts stitched memory once."""
    changes = (Kind.ALLOC, Kind.FREE, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
    is_last = not np.isin(trace.requests["kind"][row:], changes).any()
    return is_last and len(trace.final_segments) > 0


def _ranges(records: Records) -> NDArray[np.int64]:
    """Return begin and end of segments or blocks, in address order."""
    name = "size_bytes" if "size_bytes" in (records.dtype.names or ()) else "block_bytes"
    ranges = np.empty((len(records), 2), np.int64)
    ranges[:, 0] = records["address"]
    ranges[:, 1] = records["address"] + records[name]
    return ranges


def _segments_at(trace: Trace, row: int) -> NDArray[np.int64]:
    """Return begin and end of the segments held after a row, in address order."""
    requests = trace.requests[:row]
    parts = {int(part["address"]): int(part["size_bytes"]) for part in trace.start_segments}
    changes = requests[np.isin(requests["kind"], (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE))]
    for address, size, kind in changes[["address", "size_bytes", "kind"]].tolist():
        if kind == Kind.SEGMENT_ALLOC:
            parts[address] = size
        else:
            _take(parts, address, size)
    merged: list[list[int]] = []
    for address, size in sorted(parts.items()):
        if merged and trace.is_expandable and merged[-1][1] == address:
            merged[-1][1] += size
        else:
            merged.append([address, address + size])
    return np.array(merged, np.int64).reshape(-1, 2)


def _take(parts: dict[int, int], address: int, size: int) -> None:
    """Remove a range from the parts it covers; memory mapped at once may be unmapped in pieces."""
    if parts.get(address) == size:
        del parts[address]
        return
    for begin, length in list(parts.items()):
        end = begin + length
        if begin < address + size and address < end:
            del parts[begin]
            if begin < address:
                parts[begin] = address - begin
            if address + size < end:
                parts[address + size] = end - address - size


def _largest_gap(segments: NDArray[np.int64], blocks: NDArray[np.int64]) -> int:
    """Return the largest part of a segment that no block covers; both are in address order."""
    largest = 0
    for begin, end in segments.tolist():
        first, last = np.searchsorted(blocks[:, 0], [begin, end])
        inside = blocks[first:last]
        edges = np.concatenate([[begin], np.stack([inside[:, 0], inside[:, 1]], 1).ravel(), [end]])
        largest = max(largest, int((edges[1::2] - edges[::2]).max()))
    return largest


def ask_again(
    trace: Trace, refusal: Refusal, policies: Sequence[str], **knobs: int | str
) -> Refusal:
    """Return the refusal with the answer of each policy, given the memory PyTorch could have held.

    Each replays the earlier requests on a device of that size, then the refused one. No answers if
    the recording does not tell how much PyTorch held, or has no request before: then memory would
    not be fragmented.
    """
    requests = trace.requests[: refusal.event]
    if not refusal.capacity_bytes or not (requests["kind"] == Kind.ALLOC).any():
        return refusal
    before = Requests(replace(trace, requests=requests))
    settings: dict[str, Any] = dict(knobs)
    answers = []
    for policy in policies:
        with Lake("sim", policy, refusal.capacity_bytes, **settings) as lake:
            totals, _, _ = before.replay(lake, policy)
            is_served = False
            with suppress(OutOfMemoryError):
                lake.allocate(refusal.size_bytes, refusal.stream)
                is_served = totals["refused"] == 0
            held_bytes = lake.stats()["reserved_bytes"]
            answers.append(Answer(policy, is_served, held_bytes, totals["refused"]))
    return replace(refusal, answers=tuple(answers))
