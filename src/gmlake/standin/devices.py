"""GPUs by name: their memory, and what kernels are chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gmlake.standin.beyond import MIB
from gmlake.units import format_size, parse_size


@dataclass(frozen=True)
class Device:
    """A kind of GPU.

    label: as `torch.cuda.get_device_name()` has it. memory_bytes: as `torch.cuda.mem_get_info()`
    has it. capability: compute capability. multiprocessors: cuBLAS and attention choose by these.
    is_checked: whether the figures were read from such a device; else they are its data sheet's.
    """

    label: str
    memory_bytes: int
    capability: str
    multiprocessors: int
    is_checked: bool = False

    def settings(self) -> dict[str, str]:
        """Return the settings of a stand-in for it, as launcher.environment() takes them."""
        return {
            "name": f"{self.label} (gmlake stand-in, no GPU)",
            "capacity": str(self.memory_bytes),
            "capability": self.capability,
            "multiprocessors": str(self.multiprocessors),
        }


DEVICES: Final = {
    "a100-40gb": Device("NVIDIA A100-SXM4-40GB", 40_325 * MIB, "8.0", 108),
    "a100-80gb": Device("NVIDIA A100-SXM4-80GB", 81_049 * MIB, "8.0", 108),
    "h100-80gb": Device("NVIDIA H100 80GB HBM3", 85_017_493_504, "9.0", 132, is_checked=True),
    "h200": Device("NVIDIA H200", 150_109_880_320, "9.0", 132, is_checked=True),
    "b200": Device("NVIDIA B200", 182_630 * MIB, "10.0", 148),
    "a40": Device("NVIDIA A40", 45_416 * MIB, "8.6", 84),
    "rtx-a4000": Device("NVIDIA RTX A4000", 15_974 * MIB, "8.6", 48),
    "l4": Device("NVIDIA L4", 22_558 * MIB, "8.9", 58),
    "l40s": Device("NVIDIA L40S", 45_465 * MIB, "8.9", 142),
    "rtx-4090": Device("NVIDIA GeForce RTX 4090", 24_084 * MIB, "8.9", 128),
    "rtx-5090": Device("NVIDIA GeForce RTX 5090", 32_112 * MIB, "12.0", 170),
    "rtx-pro-6000": Device("NVIDIA RTX PRO 6000 Blackwell", 97_252 * MIB, "12.0", 188),
}
"""By the name that `--on` takes."""

DEFAULT: Final = "h100-80gb"

_LEAST_BYTES: Final = 512 * MIB
_MOST_BYTES: Final = 1 << 42


def device_of(name: str) -> Device:
    """Return a device by name, or one with the memory that a size such as 40GiB says.

    `NAME:SIZE` is a device of which a part is seen, or more than usual: a MIG slice, a virtual
    machine. A size alone is of the default device. Raises ValueError for what is neither, and for a
    size that no GPU has.
    """
    key, colon, size = name.lower().replace("_", "-").replace(" ", "-").partition(":")
    if key in DEVICES and not colon:
        return DEVICES[key]
    try:
        like = DEVICES[key if colon else DEFAULT]
        memory_bytes = parse_size(size or name)
    except (KeyError, ValueError):
        raise ValueError(
            f"no device is called {name!r}; there are {', '.join(DEVICES)}, or give a size as "
            "40GiB, or both as h100-80gb:40GiB"
        ) from None
    if not _LEAST_BYTES <= memory_bytes <= _MOST_BYTES:
        raise ValueError(
            f"a device of {name}: from {format_size(_LEAST_BYTES)} to {format_size(_MOST_BYTES)} "
            "are possible"
        )
    label = like.label if colon else f"a GPU of {name}"  # engines know a GPU's kernels by its name
    return Device(label, memory_bytes, like.capability, like.multiprocessors)
