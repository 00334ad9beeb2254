"""Every exception of gmlake. The extension imports them from here and raises them, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gmlake.printable import printable


class Error(Exception):
    """Base class of gmlake's errors; wrong arguments raise plain ValueErrors."""


class OutOfMemoryError(Error, MemoryError):
    """The device, or the configured capacity, has too little memory, after everything was tried."""


class DriverError(Error):
    """A driver call failed or broke its rules, or there is no usable driver or device."""


class UnsupportedError(Error):
    """This driver, device or policy does not support the operation."""


class GmlakeWarning(UserWarning):
    """A part of PyTorch works differently, or not at all, while gmlake serves it."""


@contextmanager
def needing_torch(name: str) -> Iterator[None]:
    """Say what to install if a public name needs PyTorch and it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"{name} needs PyTorch, which is not installed: pip install torch", name="torch"
        ) from None


class TraceError(Error, ValueError):
    """A trace or snapshot cannot be read, or is inconsistent.

    `reason` is one line; `path` and `event` (an index from 0 into the device's events) are None
    where unknown. The text is "path: event N: reason", one line whatever the path is.
    """

    def __init__(self, reason: str, *, event: int | None = None, path: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.event = event
        self.path = path

    def __str__(self) -> str:
        """Join the known parts in the order file, event, reason."""
        where = [] if self.path is None else [printable(self.path)]
        if self.event is not None:
            where.append(f"event {self.event}")
        return ": ".join([*where, self.reason])

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the keyword-only parts when an error crosses a process boundary."""
        return _rebuild_trace_error, (self.reason, self.event, self.path)


def _rebuild_trace_error(reason: str, event: int | None, path: str | None) -> TraceError:
    return TraceError(reason, event=event, path=path)


@contextmanager
def blaming_trace() -> Iterator[None]:
    """Turn a ValueError of the core into a TraceError, if all arguments come from a trace."""
    try:
        yield
    except TraceError:
        raise
    except ValueError as error:
        raise TraceError(str(error)) from None
