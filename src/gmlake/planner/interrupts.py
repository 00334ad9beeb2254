"""Work in C that Ctrl-C does not wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS: Final = 0.1
"""Between two chances to interrupt: a signal that another thread got wakes nobody."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def interruptible(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call something that lets other threads run, and return or raise what it does.

    It runs in a thread of its own, since the main one is interrupted between two steps of Python
    only. After an interrupt it goes on unseen until it is done, or the process ends.
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
