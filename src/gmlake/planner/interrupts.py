"""Work in C that Ctrl-C does not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

_LOOK_SECONDS: Final = 0.1
"""Between two checks for interrupts: a signal in another thread does not wake the main one."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def interruptible(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function that releases the GIL; return its result or raise its exception.

    It runs in its own thread, since the main one can be interrupted only between two steps of
    Python. After an interrupt it continues in the background until it is done, or the process ends.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 (raised again below)
            errors.append(error)

    if threading.current_thread() is not threading.main_thread():
        return work(*args, **kwargs)
    thread = threading.Thread(target=run, name="gmlake-plan", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_SECONDS)
    if errors:
        raise errors[0]
    return results[0]
