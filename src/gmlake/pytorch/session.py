"""Sessions: the stretches of a program that gmlake serves.

A session is open from its entry to its exit, in whatever threads these happen. The open session
that was entered last decides how the requests of all threads are served; if none is open,
PyTorch's own algorithm serves. PyTorch is imported with the first entry.

Openings reference their session weakly, see locking.py.
"""

from __future__ import annotations

import os
import sys
from contextlib import ContextDecorator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmlake import _core
from gmlake.errors import needing_torch
from gmlake.pytorch.locking import Opening, lock
from gmlake.pytorch.session_settings import Given, Settings, with_changes
from gmlake.watching.publishing import publish_if_asked

if TYPE_CHECKING:
    from typing_extensions import Self

    from gmlake.lake import Lake
    from gmlake.pytorch.serving import Serving

_CLOSED = "it is not open"
_PASSED_BY = ("native", "caching")  # mode and server if PyTorch's own allocator serves instead


class _Opening(Opening):
    """One entry of a session, until its exit."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.belongs_to(session)
        self.mode = ""  # that began, even if the entry was interrupted later
        self.server = "caching"
        self.refusals = ""  # the file to write when memory runs out

    @property
    def serves(self) -> bool:
        return self.mode not in ("", "off")


class _Process:
    """The sessions of this process, guarded by locking.lock."""

    def __init__(self) -> None:
        self.open: list[_Opening] = []
        self.lasting: Session | None = None  # that of enable()
        self.serving: Serving | None = None
        self.looks_again = False


_process = _Process()


class Session(ContextDecorator):
    """A part of a program that gmlake serves, made by gmlake.enabled().

    It begins with the `with` statement. It can be entered again after its end, but not within
    itself. As a decorator it makes each call of a function a session.

    policy: the one that serves inside. mode: "native"; "off" if gmlake cannot serve, for the reason
    in `why`; "" while it is not open.
    """

    def __init__(self, given: Given) -> None:
        self._given = given
        self.settings = Settings.of(given)
        self.policy = self.settings.policy
        self.mode = ""
        self.why = _CLOSED

    def _recreate_cm(self) -> Self:
        return type(self)(self._given)

    def __enter__(self) -> Self:
        """Begin the session.

        Raises RuntimeError if the session is open already, and in the first one while a thread
        captures a graph or is inside of torch.cuda.use_mem_pool(), and ValueError if the process is
        already served with other settings.
        """
        with lock:
            _update_serving()
            if any(opening.owner is self for opening in _process.open):
                raise RuntimeError("this session is open already; make another one to nest them")
            opening = _Opening(self)
            try:
                _process.open.append(opening)
                self._open(opening)
                _update_serving()
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the session; does nothing if it ended already, or this process was forked meanwhile.

        Does nothing either while Python shuts down, e.g. if a generator kept it open: the process
        ends with all its memory.
        """
        if sys.is_finalizing():
            return
        with lock:
            mine = [opening for opening in _process.open if opening.owner is self]
            for opening in mine:
                opening.is_ended = True
            self.mode, self.why = "", _CLOSED
            _update_serving()
            if any(opening.serves for opening in mine):
                from gmlake.pytorch import serving

                serving.tell_of_fallbacks()

    def _open(self, opening: _Opening) -> None:
        with needing_torch("gmlake.enabled()"):
            from gmlake.pytorch import on_oom, serving

        _process.serving = _process.serving or serving.Serving()
        mode = serving.begin()
        if mode.name != "off":
            _look_again_when_cuda_starts()
            others = [other.owner for other in _process.open if other is not opening]
            is_alone = all(session is _process.lasting for session in others)
            self.policy, server = _process.serving.resolve(
                self._given, self.settings, is_alone=is_alone
            )
            if (mode.name, server) == _PASSED_BY and _core.torch_has_entered():
                raise RuntimeError(
                    'gmlake.enabled("caching"): a thread is inside of a gmlake.region() or '
                    "exportable(), which PyTorch's own allocator would not serve; enter it outside"
                )
            opening.server = server
        opening.mode = mode.name
        opening.refusals = self.settings.on_oom
        if self.settings.on_oom and mode.name != "off":
            on_oom.prepare(has_lines=self.settings.on_oom_lines)
        self.mode, self.why = mode.name, mode.why
        if mode.name != "off":
            publish_if_asked()
            self._share()

    def _share(self) -> None:
        """Share the devices from now on, if the settings say so."""
        if self.settings.share:
            from gmlake.pytorch import sharing

            sharing.begin(self.settings.share)

    def share_as(self, given: Given) -> None:
        """Take over how devices are to be shared, which may change at any time."""
        before, share = self.settings.share, with_changes(self.settings, given).share
        self.settings = replace(self.settings, share=share)
        if share != before and self.mode == "native":
            self._share()

    def may_stay(self, given: Given) -> bool:
        """Whether this session has the given settings; False: no, and it has served nothing yet.

        Raises ValueError if it has other settings and has served.
        """
        difference = self.settings.difference(with_changes(self.settings, given))
        if difference and self._is_used:
            raise ValueError(f"gmlake is enabled with other settings already: {difference}")
        return not difference

    @property
    def _is_used(self) -> bool:
        """Whether it has a lake, a device's or a region's."""
        from gmlake.pytorch import lakes

        return self.mode == "native" and bool(lakes.everywhere())

    def __repr__(self) -> str:
        if not self.mode:
            return f"<gmlake.Session: policy {self.policy}, not open>"
        if self.mode == "off":
            return f"<gmlake.Session: off, since {self.why}>"
        return (
            f"<gmlake.Session: policy {self.policy}; "
            f"devices served: {' '.join(map(str, self.devices)) or 'none yet'}>"
        )

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices served and in use."""
        if self.mode == "native":
            from gmlake.pytorch import lakes

            return lakes.devices()
        return ()

    def lake(self, device: int | None = None) -> Lake:
        """Return the lake of a device; None: the current one.

        It is PyTorch's: inspect it and trim it, but do not allocate from it. Raises RuntimeError
        before the first request on that device.
        """
        from gmlake.pytorch import lakes

        number = lakes.current_device() if device is None else device
        found = lakes.find(number)
        if found is None:
            raise RuntimeError(f"nothing has been asked of device {number} yet, so it has no lake")
        return found

    def stats(self, device: int | None = None) -> dict[str, Any]:
        """Return Lake.stats() of a device, in bytes; None: the current one.

        Empty before the first request on that device.
        """
        from gmlake.pytorch import lakes, serving

        serving.tell_of_fallbacks()
        found = lakes.find(lakes.current_device() if device is None else device)
        return {} if found is None else dict(found.stats())

    def trim(self) -> int:
        """Release idle memory on every device; return the number of bytes."""
        from gmlake.pytorch import lakes

        held = lakes.reserved_bytes()
        with lock:
            if self.mode == "native":
                lakes.trim_all()
        return max(0, held - lakes.reserved_bytes())


def _look_again_when_cuda_starts() -> None:
    """Have an allocator noticed that takes gmlake's place before CUDA starts: later none can."""
    from gmlake.pytorch import compat, device

    if not _process.looks_again and not device.is_started():
        _process.looks_again = True
        compat.when_cuda_starts(_look_again)


def _look_again() -> None:
    from gmlake.pytorch import serving

    with lock:
        if why := serving.lost():
            for opening in _process.open:
                opening.mode = "off"
                if opening.owner is not None:
                    opening.owner.mode, opening.owner.why = "off", why
            _update_serving()


def _update_serving() -> None:
    """End sessions that are over, and apply the innermost one. pre: the lock is held.

    May be interrupted anywhere; the next call completes it.
    """
    left = [opening for opening in _process.open if not opening.is_over]
    if _process.serving is not None:
        serving = [opening for opening in left if opening.serves]
        _process.serving.serve_with(serving[-1].server if serving else "caching")
        from gmlake.pytorch import on_oom

        files = [opening.refusals for opening in serving if opening.refusals]
        on_oom.write_to(files[-1] if files else "")
    _process.open = left


def enabled(
    policy: str | None = None,
    *,
    capacity: int | str | None = None,
    handle_types: str | None = None,
    on_oom: str | Path | None = None,
    share: str | None = None,
    **knobs: int | str,
) -> Session:
    """Return a session: inside `with gmlake.enabled():` gmlake serves PyTorch.

    policy: one of gmlake.policies(), "stitch" unless GMLAKE_POLICY says otherwise. "caching"
        serves as PyTorch would, and is allowed within sessions of any other policy.
    capacity: the maximum memory to hold on each device, in bytes or as text ("60GiB");
        GMLAKE_CAPACITY.
    handle_types: how memory must be exportable to other processes, "posix_fd" or "fabric";
        GMLAKE_HANDLE_TYPES.
    on_oom: a file to write when memory runs out, with what held it, for `gmlake view`. Once per
        process; the exception names the file, and until then it costs nothing. GMLAKE_ON_OOM;
        with GMLAKE_ON_OOM_LINES=1 PyTorch keeps the last events and their source lines, which
        costs some microseconds per request.
    share: "device": before PyTorch is refused memory in one process, the other processes of this
        user that share the device give what they hold idle, until they end. Those of the lowest
        priority give first, and of these the one with most idle memory for its weight:
        "device,priority=0,weight=1" is the same as "device". GMLAKE_SHARE.
    knobs: settings of the policy by name, see gmlake.knobs(), as in optimize_for="memory";
        GMLAKE_SET="name=value,name=value".

    gmlake can be enabled at any time, even after CUDA was used. If it cannot serve (no CUDA, an
    unknown PyTorch, no adapter and no C++ compiler), the session does nothing: PyTorch's allocator
    serves, a GmlakeWarning says once why and what to do, and `mode` is "off".

    Policy, capacity and knobs are fixed for the process once a device was used; entering a later
    session with others raises ValueError. Raises ValueError for an unknown name or a value out of
    range, with the name of the environment variable if it comes from one, and, at the first entry,
    RuntimeError while any thread captures a graph or is inside of torch.cuda.use_mem_pool(): what
    began before gmlake is PyTorch's, and later entries know what has begun since.
    """
    return Session(Given(policy, capacity, handle_types, knobs, on_oom, share))


def enable(
    policy: str | None = None,
    *,
    capacity: int | str | None = None,
    handle_types: str | None = None,
    on_oom: str | Path | None = None,
    share: str | None = None,
    **knobs: int | str,
) -> Session:
    """Begin a session that lasts until disable() or the end of the process; see enabled().

    If it is open already, it is returned unchanged but for `share`, which may change at any time.
    Other settings replace it if no device was used
    yet; after that they raise ValueError and change nothing.
    """
    given = Given(policy, capacity, handle_types, knobs, on_oom, share)
    with needing_torch("gmlake.enable()"), lock:
        known = _process.lasting
        if known is not None and known.may_stay(given):
            known.share_as(given)
            return known
        _process.lasting = Session(given).__enter__()
        if known is not None:
            known.__exit__(None, None, None)
        return _process.lasting


def disable() -> None:
    """End the session of enable(), if there is one."""
    with lock:
        session, _process.lasting = _process.lasting, None
        if session is not None:
            session.__exit__(None, None, None)


def is_enabled() -> bool:
    """Whether gmlake serves PyTorch now: a session is open whose mode is not "off"."""
    return _innermost() is not None


def is_passed_by() -> bool:
    """Whether PyTorch's own allocator serves instead, as within gmlake.enabled("caching")."""
    now = _innermost()
    return now is not None and (now.mode, now.server) == _PASSED_BY


def settings() -> Settings | None:
    """Return the settings of this process; None before its first session that serves."""
    return None if _process.serving is None else _process.serving.fixed


def why_off() -> str:
    """Return why gmlake does not serve in an open session; "" if it does, or none is open."""
    with lock:
        owners = [opening.owner for opening in reversed(_process.open) if opening.mode == "off"]
        return next((session.why for session in owners if session is not None), "")


def _innermost() -> _Opening | None:
    """Return the opening that decides how requests are served."""
    with lock:
        if any(opening.is_over for opening in _process.open):
            _update_serving()
        return next((opening for opening in reversed(_process.open) if opening.serves), None)


def _after_fork() -> None:
    """Drop the sessions in a child that cannot use CUDA; keep them if the parent did not use it."""
    compat = sys.modules.get("gmlake.pytorch.compat")  # not there: no session ever began
    if compat is not None and compat.is_in_bad_fork():
        for session in filter(None, [opening.owner for opening in _process.open]):
            session.mode, session.why = "", _CLOSED
        _process.open.clear()
        _process.lasting = None


os.register_at_fork(after_in_child=_after_fork)
