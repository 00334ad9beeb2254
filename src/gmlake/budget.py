"""Bounds the memory and CPU time for reading a file, in proportion to the file's size.

Every reader bounds its own work. This bound covers all of them, so that a command ends soon and
with one line even if a reader or a picture misjudges a file.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from gmlake.errors import Error, TraceError
from gmlake.units import format_size

LEAST_BYTES: Final = 4 << 30
"""Memory that every file may take, however small."""

LEAST_SECONDS: Final = 20.0
"""CPU time that every file may take, however small."""

BYTES_PER_BYTE: Final = 20
SECONDS_PER_BYTE: Final = 20 / 100e6

_AGAIN_S: Final = 1.0
"""Between two attempts to stop: Python ignores exceptions raised while it frees an object."""

_ADVICE: Final = "if you trust it, read it in Python, where nothing is limited"


class _TooLongError(BaseException):
    """The time is over. Not an Exception, so that no `except Exception` on the way catches it."""


class Budget:
    """Bounds the cost of a block of code that reads and draws a file.

    with Budget(path):
        ...

    most_bytes: of memory, beyond what the process has where the block begins; None: 4 GiB, or 20
        times the file's size where that is more.
    seconds: of CPU time, of all threads together; None: 20, or 20 for each 100 MB of the file.

    Exceeding either raises TraceError, with the file's name. A budget may be entered again, with
    the time that was left: work that the user asked for by options, such as a replay or a search
    for a plan, runs between two blocks and may take as long as it needs.

    Signals reach the main thread only, and memory is limited for a whole process. So off the main
    thread nothing is limited; nor is time if the program uses the timer itself, and a lower limit
    of memory stays. The cyclic garbage collector is off meanwhile: it would scan all that was read
    again and again, a third of the time. The block restores everything at its end.
    """

    def __init__(
        self, path: str | Path, *, most_bytes: int | None = None, seconds: float | None = None
    ) -> None:
        """Look up the file's size; its reader reports whatever is wrong with it."""
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
            return  # no other system reports the usage that the limit applies to
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
        """Raise in the code that is running, unless it is __exit__, which restores everything."""
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
    """Whether memory was refused, even if a reader turned that into another error."""
    while error is not None:
        is_refusal = isinstance(error, MemoryError) and not isinstance(error, Error)
        if is_refusal or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        error = error.__context__
    return False
