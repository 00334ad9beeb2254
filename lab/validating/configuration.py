"""The settings of PyTorch's allocator during a recording, as settings of the policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gmlake.allocator_conf import VARIABLES, read_allocator_conf
from gmlake.trace.layout import ALIGNMENT, SMALL_LIMIT, SMALL_SEGMENT, Kind

if TYPE_CHECKING:
    from gmlake.trace import Trace
    from validating.report import Notes

_MIB: Final = 1 << 20
_LARGE_SEGMENT: Final = 20 * _MIB
_MOST_SLACK: Final = 20 * _MIB
_LARGE_REQUEST: Final = 10 * _MIB
_SEGMENT_GRANULE: Final = 2 * _MIB
_ONLY_IN_VARIABLES: Final = ("large_segment_size", "max_non_split_rounding")
_PERCENT_TOLERANCE: Final = 1e-9
_LARGEST_INTERVAL: Final = 15


@dataclass(frozen=True)
class Configuration:
    """The settings that affect PyTorch's behaviour, by the names of the policies' knobs.

    remarks: settings that are not supported, in words.
    """

    knobs: dict[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def large_granule_bytes(self) -> int:
        """The segment of requests from 1 to 10 MiB; expandable segments grow by as much."""
        return self.knobs.get("large_segment_size", _LARGE_SEGMENT)

    @property
    def oversize_bytes(self) -> int | None:
        """The size from which blocks are not split; None if all are split."""
        return self.knobs.get("max_split_size")

    @property
    def most_slack_bytes(self) -> int:
        """How much larger an oversize block may be than the request that it serves."""
        return self.knobs.get("max_non_split_rounding", _MOST_SLACK)

    @property
    def collects_above_bytes(self) -> int | None:
        """How much PyTorch may hold before it collects garbage; None if it never does."""
        percent = self.knobs.get("garbage_collection_percent")
        return None if percent is None else int(percent / 100 * self.knobs["memory_limit"])

    def segment_bytes(self, size_bytes: int) -> int:
        """Return the bytes that must fit under PyTorch's memory limit to serve a request."""
        if size_bytes <= SMALL_LIMIT:
            return SMALL_SEGMENT
        least_bytes = -(-size_bytes // _SEGMENT_GRANULE) * _SEGMENT_GRANULE
        if size_bytes < _LARGE_REQUEST:
            return max(self.large_granule_bytes, least_bytes)
        return least_bytes

    def granules_bytes(self, size_bytes: int) -> int:
        """Return the bytes that an expandable segment maps for a request if none are mapped yet."""
        granule_bytes = SMALL_SEGMENT if size_bytes <= SMALL_LIMIT else self.large_granule_bytes
        return -(-size_bytes // granule_bytes) * granule_bytes


def round_size(size_bytes: int, settings: dict[str, Any]) -> int:
    """Round as PyTorch does: to 512, or to a fraction of a power of two if so configured."""
    divisions = settings.get("roundup_power2_divisions")
    if isinstance(divisions, dict) and size_bytes > ALIGNMENT:
        interval = min(max(size_bytes // _MIB, 1).bit_length() - 1, _LARGEST_INTERVAL)
        count = divisions.get(str(1 << interval), 0)
        if type(count) is int and count > 1 and size_bytes > ALIGNMENT * count:
            floor = 1 << (size_bytes.bit_length() - 1)
            step = floor // count
            if floor != size_bytes and step > 0:
                return -(-(size_bytes) // step) * step
    return max(ALIGNMENT, -(-size_bytes // ALIGNMENT) * ALIGNMENT)


def configuration_of(trace: Trace, notes: Notes | None) -> Configuration:
    """Return the allocator's settings, as far as the recording and the notes tell."""
    settings = trace.settings
    knobs = _split_limit(settings) | _divisions(settings) | _from_variables(settings)
    if notes and notes.limit_bytes is not None:
        knobs["memory_limit"] = notes.limit_bytes
    threshold = settings.get("garbage_collection_threshold", 0.0)
    # Blocks of expandable segments are never collected.
    if trace.is_expandable or type(threshold) is not float or not 0 < threshold < 1:
        return Configuration(knobs)
    return _with_collection(knobs, threshold, trace, notes)


def _with_collection(
    knobs: dict[str, int], threshold: float, trace: Trace, notes: Notes | None
) -> Configuration:
    """Add garbage collection, which PyTorch does only under a memory limit."""
    gave_back = (trace.requests["kind"] == Kind.SEGMENT_FREE).any()
    if not gave_back or (notes and notes.limit_bytes is None):
        return Configuration(knobs)
    percent = round(100 * threshold)
    is_whole = percent > 0 and abs(100 * threshold - percent) < _PERCENT_TOLERANCE
    if notes is None or notes.limit_bytes is None:
        why = "without notes that tell the memory limit"
    elif not is_whole:
        why = "at fractions of a percent"
    elif notes.limit_bytes > notes.capacity_bytes:
        why = "where the memory limit exceeds the device"
    else:
        return Configuration(knobs | {"garbage_collection_percent": percent})
    remark = (
        f"garbage_collection_threshold is {threshold:g}, which is not modelled {why}; what PyTorch "
        "collected is taken for a call of empty_cache"
    )
    return Configuration(knobs, (remark,))


def _split_limit(settings: dict[str, Any]) -> dict[str, int]:
    limit = settings.get("max_split_size", -1)
    return {"max_split_size": limit} if type(limit) is int and limit > 0 else {}


def _divisions(settings: dict[str, Any]) -> dict[str, int]:
    divisions = settings.get("roundup_power2_divisions", {})
    if not isinstance(divisions, dict):
        return {}
    return {
        f"roundup_power2_divisions.{interval}": count
        for interval, count in divisions.items()
        if type(count) is int and count > 1
    }


def _from_variables(settings: dict[str, Any]) -> dict[str, int]:
    """Read the settings that PyTorch records only as text of its environment variable."""
    knobs: dict[str, int] = {}
    for variable in VARIABLES:
        sizes = read_allocator_conf({variable: str(settings.get(variable, ""))})
        knobs |= {knob: sizes[knob] for knob in _ONLY_IN_VARIABLES if knob in sizes}
    return knobs
