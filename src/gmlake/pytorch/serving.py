"""How this process is served: whether at all, with which settings, and by which allocator now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gmlake import _core
from gmlake.pytorch import device, lakes, native, notices, session_settings
from gmlake.pytorch.session_settings import Given, Settings, with_changes

_CACHING: Final = "caching"


@dataclass(frozen=True)
class Mode:
    """The mode of a session. name: "native" or "off". why: for "off", half a sentence."""

    name: str
    why: str


def begin() -> Mode:
    """Install gmlake in front of PyTorch's allocator until the process ends, if possible.

    Otherwise a warning says why, once. Raises RuntimeError as native.install() does.
    """
    why = ("" if native.is_installed() else device.absence()) or native.install()
    if not why:
        return Mode("native", "")
    notices.once("off", _off(why))
    return Mode("off", why)


def lost() -> str:
    """Return why gmlake, which was in place, serves nothing; warn of it. Raises nothing."""
    if why := native.obstacle():
        notices.warn_safely(_off(why))
    return why


def _off(why: str) -> str:
    who = "another library's" if device.backend() == "pluggable" else "PyTorch's own"
    return f"gmlake serves nothing in this process, {who} allocator does: {why}"


class Serving:
    """The settings, `fixed` from the first use of a device until the process ends."""

    def __init__(self) -> None:
        self.fixed: Settings | None = None

    def resolve(self, given: Given, settings: Settings, *, is_alone: bool) -> tuple[str, str]:
        """Apply a session's settings; return its policy and server: "policy" or "caching".

        settings: those of the session, including `given`, those from its arguments. is_alone: no
        other session is open. Raises ValueError if other settings are fixed already.
        """
        if self.fixed is None or (is_alone and not lakes.everywhere()):
            session_settings.configure(replace(settings, knobs={**_of_ranks(), **settings.knobs}))
            self.fixed = settings
            return settings.policy, "policy"
        is_caching = given.policy == _CACHING != self.fixed.policy
        wanted = with_changes(self.fixed, replace(given, policy=None) if is_caching else given)
        if difference := self.fixed.difference(wanted):
            raise ValueError(
                f"gmlake serves this process with other settings already, which hold until it "
                f"ends: {difference}"
            )
        return (_CACHING, "caching") if is_caching else (wanted.policy, "policy")

    def serve_with(self, server: str) -> None:
        """Serve requests from now on by the lakes, or by PyTorch ("caching")."""
        native.serve(is_wanted=server != "caching")


def _of_ranks() -> dict[str, int]:
    """Return the settings of a job of several ranks, unless others are given.

    A kernel that communicates may wait for another rank, and that for what this one has not begun
    yet: a stream that is made to wait for it may wait for ever. So streams lend what is complete.
    """
    return {"reuse_allow_internal_dependencies": 0} if device.place()[1] > 1 else {}


def tell_of_fallbacks() -> None:
    """Warn once for each device that could not be served as configured."""
    for number in lakes.devices():
        if why := _core.torch_fallback(number):
            notices.once(
                f"fallback {number}",
                f"device {number} is served as PyTorch's own allocator would: {why}",
            )
        if why := _core.torch_sharing(number)["why"]:
            notices.once(f"sharing {number}", f"device {number} is not shared: {why}")
