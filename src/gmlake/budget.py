"""What reading a file may cost, by its size: memory and CPU time, bounded in one place.

Every reader bounds its own work. This holds for all of them at once, so that a command ends soon
and in one line also where a reader, or what draws what was read, was wrong about a file.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gmlake.errors import Error, TraceError
from gmlake.units import format_size

if TYPE_CHECKING:
    from types import FrameType, TracebackType

LEAST_BYTES: Final = 4 << 30
"""Memory that every file may take, however small."""

LEAST_SECONDS: Final = 20.0
"""CPU time that every file may take, however small."""

BYTES_PER_BYTE: Final = 20
SECONDS_PER_BYTE: Final = 20 / 100e6

_AGAIN_S: Final = 1.0
"""Between two attempts to stop: Python drops what is raised while it frees an object."""

_ADVICE: Final = "if you trust it, read it in Python, where nothing is limited"


class _TooLongError(BaseException):
    """The time is over. No `except Exception` on the way may take it for its own."""


class Budget:
    """Bounds what a block of code costs that reads a file, and that draws it.

    with Budget(path):
        ...

    most_bytes: of memory, beyond what the process has where the block begins; None: 4 GiB, or 20
        times the file's size where that is more.
    seconds: of CPU time, of all threads together; None: 20, or 20 for each 100 MB of the file.

    What goes beyond either raises TraceError, with the file's name. A budget may be entered again,
    and then has the time that was left: what the user asked for by options, such as a replay or a
    search for a plan, goes on between two blocks and may take as long as it needs.

    Signals come to the main thread, and memory is limited for a whole process. So off the main
    thread nothing is limited; nor is time where the program uses the timer itself, and a limit of
    memory that is lower already stays. The collector of cycles rests meanwhile: it would look at
    all that was read again and again, a third of the time. All is as before after the block.
    """

    def __init__(
        self, path: str | Path, *, most_bytes: int | None = None, seconds: float | None = None
    ) -> None:
        """Look how large the file is; what is wrong with it, its reader says."""
        try:
            self._file_bytes = os.stat(path).st_size  # noqa: PTH116 (takes what Path() refuses)
        except (OSError, ValueError):
            self._file_bytes = 0
        self._path = str(path)
        self._most_bytes = most_bytes or max(LEAST_BYTES, BYTES_PER_BYTE * self._file_bytes)
        self._seconds = seconds or max(LEAST_SECONDS, SECONDS_PER_BYTE * self._file_bytes)
        self._left_s = self._seconds
        self._is_over = False
        self._limit_before: int | None = None
        self._times = False
        self._collects = False

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._collects = gc.isenabled()
            gc.disable()
            self._limit_memory()
            self._limit_time()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        is_limited = self._limit_before is not None
        self._set_back()
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return
        if self._is_over:
            raise self._refusal(f"{self._seconds:.3g} s of CPU time") from None
        if is_limited and _lacked_memory(error):
            raise self._refusal(f"{format_size(self._most_bytes)} of memory") from None

    def _refusal(self, what: str) -> TraceError:
        reason = f"refused: takes more than {what}, and no file of its size should; {_ADVICE}"
        return TraceError(reason, path=self._path)

    def _limit_memory(self) -> None:
        try:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        except OSError:
            return  # no other system counts what the limit is of
        limit = pages * resource.getpagesize() + self._most_bytes
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if all(known == resource.RLIM_INFINITY or limit < known for known in (soft, hard)):
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
            self._limit_before = soft

    def _limit_time(self) -> None:
        before = signal.getsignal(signal.SIGPROF)
        is_taken = before is None or signal.getitimer(signal.ITIMER_PROF)[0] > 0
        if is_taken:
            return
        self._handler_before = before
        self._times = True
        signal.signal(signal.SIGPROF, self._stop)
        signal.setitimer(signal.ITIMER_PROF, max(self._left_s, 1e-3), _AGAIN_S)

    def _stop(self, _number: int, frame: FrameType | None) -> None:
        """Raise in whatever runs, but for what sets everything back."""
        self._is_over = True
        while frame is not None:
            if frame.f_code is Budget.__exit__.__code__:
                return
            frame = frame.f_back
        raise _TooLongError

    def _set_back(self) -> None:
        if self._collects:
            gc.enable()
        if self._times:
            self._left_s, _ = signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, self._handler_before)
            self._times = False
        if self._limit_before is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (self._limit_before, hard))
            self._limit_before = None


def _lacked_memory(error: BaseException | None) -> bool:
    """Whether memory was refused, also where a reader made another error of it."""
    while error is not None:
        is_refusal = isinstance(error, MemoryError) and not isinstance(error, Error)
        if is_refusal or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        error = error.__context__
    return False
