"""How this process is served: in which mode, with which settings, and by whom at the moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gmlake import _core
from gmlake.pytorch import device, full, lakes, native, notices, registry
from gmlake.pytorch.settings import with_changes

if TYPE_CHECKING:
    from gmlake.pytorch.settings import Given, Settings

_CACHING: Final = "caching"
_WHAT_TO_DO: Final = "mode full needs gmlake.enable() before anything uses CUDA, or `gmlake run`"


@dataclass(frozen=True)
class Mode:
    """What a region gets. name: "native", "full" or "off". why: half a sentence."""

    name: str
    why: str


def decide(wanted: str) -> Mode:
    """Choose the mode, which may be "auto"; RuntimeError where the wanted one is not possible."""
    if native.is_installed():
        if wanted not in ("auto", "native"):
            raise RuntimeError(f'this process has mode "native" already, and not {wanted!r}')
        return Mode("native", "gmlake is in front of PyTorch's allocator")
    if full.is_installed():
        if wanted not in ("auto", "full"):
            raise RuntimeError(f'this process has mode "full" already, and not {wanted!r}')
        return Mode("full", "gmlake is PyTorch's allocator since before CUDA was used")
    if absence := device.absence():
        notices.once("off", f"gmlake serves nothing in this process: {absence}")
        return Mode("off", absence)
    refusals = {}
    for name, mode in (("native", native), ("full", full)):
        if wanted in (name, "auto"):
            refusals[name] = mode.obstacle()
            if not refusals[name]:
                return Mode(name, _why(name, wanted, refusals))
    reasons = "; ".join(f"mode {name} is impossible: {why}" for name, why in refusals.items())
    raise RuntimeError(f"{reasons}; {_WHAT_TO_DO}")


def _why(name: str, wanted: str, refusals: dict[str, str]) -> str:
    if wanted == name:
        return "it was asked for"
    if name == "native":
        return "it can begin at any time and takes nothing from PyTorch"
    why = f"mode native is impossible: {refusals['native']}"
    notices.once(
        "full",
        f"{why}; so gmlake takes the place of PyTorch's allocator, without torch.cuda.MemPool, "
        "CUDA tensors shared between processes, cudnn.benchmark and "
        'torch.compile(mode="reduce-overhead")',
    )
    return why


class Serving:
    """The settings that hold, until the process ends, from the first request to CUDA on."""

    def __init__(self) -> None:
        """Nothing is settled."""
        self._fixed: Settings | None = None

    def settle(self, given: Given, settings: Settings, *, is_alone: bool) -> tuple[str, str]:
        """Let a region have its settings; return its policy, and who serves as serve_with() has it.

        settings: what the region chose, of which `given` is what arguments said. is_alone: no
        other region is open. Raises ValueError where other settings hold already.
        """
        if self._fixed is None or (is_alone and not lakes.everywhere()):
            registry.configure(settings)
            self._fixed = settings
            return settings.policy, "policy"
        is_caching = given.policy == _CACHING != self._fixed.policy
        wanted = with_changes(self._fixed, replace(given, policy=None) if is_caching else given)
        if difference := self._fixed.difference(wanted):
            raise ValueError(
                f"gmlake serves this process with other settings already, which hold until it "
                f"ends: {difference}"
            )
        return (_CACHING, "caching") if is_caching else (wanted.policy, "policy")

    def serve_with(self, server: str) -> None:
        """Let requests from now on be served by "policy" or by "caching"."""
        if native.is_installed():
            native.serve(is_wanted=server != "caching")
        elif self._fixed is not None:
            _core.torch_serve_with("caching" if server == "caching" else "policy")


def installed() -> str:
    """Return the mode that lasts until the process ends, "native" or "full"; "" for none."""
    return "native" if native.is_installed() else "full" if full.is_installed() else ""


def tell_of_fallbacks() -> None:
    """Say once, for each device, that it could not be served as configured."""
    for number in lakes.devices():
        if why := _core.torch_fallback(number):
            notices.once(
                f"fallback {number}",
                f"device {number} is served as PyTorch's own allocator would: {why}",
            )
