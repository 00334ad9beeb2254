"""Programs that are forked from a process that has imported PyTorch, which takes 2 s each time.

See fork_server.py. A process of tests has one such server, made when the first program is started.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.standin.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

ENVIRONMENT: Final = {
    name: value
    for name, value in os.environ.items()
    if name not in {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}
}
"""Of the programs, as the tests begin: PyTorch adds variables once something is compiled."""
_READ_LATER: Final = ("GMLAKE_", "CUDA_VISIBLE_DEVICES", "TMPDIR", "XDG_RUNTIME_DIR", "PYTEST_")
"""What begins so is read after the imports; all other variables may be read by them."""
_READ_AT_ONCE: Final = ("GMLAKE_TEST_", "GMLAKE_RUN", "GMLAKE_STANDIN_LIBRARY")
_CHUNK: Final = 1 << 16


class Forked:
    """A launcher that the server forked, as much of a subprocess.Popen[str] as the tests use."""

    def __init__(self, connection: socket.socket, output: int, errors: int) -> None:
        self.returncode: Any = None  # an int once it has ended, as subprocess has it
        self._connection = connection
        self._pipes: tuple[int, ...] = (output, errors)
        self.pid = self._number()
        if self.pid < 0:
            msg = "the fork server has ended; why is on standard error"
            raise RuntimeError(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._close()

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.returncode is None:
            self._wait(0)
        found: int | None = self.returncode
        return found

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return all of its output and its errors once it has ended."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        parts: dict[int, list[bytes]] = {pipe: [] for pipe in self._pipes}
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                found = selector.select(_left(ends_at))
                if not found:
                    raise subprocess.TimeoutExpired("a forked program", timeout or 0)
                for key, _ in found:
                    data = os.read(key.fd, _CHUNK)
                    parts[key.fd].append(data)
                    if not data:
                        selector.unregister(key.fd)
        if not self._wait(_left(ends_at)):
            raise subprocess.TimeoutExpired("a forked program", timeout or 0)
        output, errors = (b"".join(parts[pipe]).decode() for pipe in self._pipes)
        self._close()
        return output, errors

    def _wait(self, seconds: float | None) -> bool:
        """Whether it has ended."""
        if self.returncode is None:
            self._connection.settimeout(seconds)
            try:
                self.returncode = self._number()
            except (TimeoutError, BlockingIOError):
                return False
        return True

    def _number(self) -> int:
        text = self._connection.recv(array.array("i").itemsize)
        return array.array("i", text)[0] if text else -signal.SIGKILL  # before it said it

    def _close(self) -> None:
        self._connection.close()
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = ()


def _left(ends_at: float | None) -> float | None:
    return None if ends_at is None else max(0, ends_at - time.monotonic())


class _Server:
    """The process that forks, with the environment that its imports have seen."""

    def __init__(self) -> None:
        self._environment = _early(ENVIRONMENT)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = ENVIRONMENT | {
            "PYTHONPATH": _path(ENVIRONMENT),
            "OPENBLAS_NUM_THREADS": "1",  # a fork does not take its threads along
        }
        variables.pop("GMLAKE_STANDIN_REPORT", None)  # each program has one of its own
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.standin.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                env=variables,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # it ends when this process does, not by Ctrl-C
            )

    def can_start(self, variables: Mapping[str, str]) -> bool:
        """Whether the imports would have seen the same in a process with these variables."""
        return _early(variables) == self._environment

    def start(
        self,
        program: Path,
        arguments: Sequence[str],
        settings: Sequence[str],
        variables: Mapping[str, str],
    ) -> Forked:
        """Start a program in the folder of the repository."""
        request = {
            "arguments": [*settings, str(program), *arguments],
            "variables": {**variables, "PYTHONPATH": _path(variables)},
            "folder": str(ROOT),
        }
        ours, theirs = socket.socketpair()
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        with theirs, Path(os.devnull).open("rb") as nothing:
            given = [theirs.fileno(), nothing.fileno(), output_end, errors_end]
            socket.send_fds(self._requests, [json.dumps(request).encode()], given)
        os.close(output_end)
        os.close(errors_end)
        return Forked(ours, output, errors)

    def end(self) -> None:
        """Let the server end; what it has started goes on."""
        self._requests.close()
        self._process.wait()


def _path(variables: Mapping[str, str]) -> str:
    """Return PYTHONPATH as `python -m tests.standin` has it."""
    return os.pathsep.join(filter(None, (str(ROOT), variables.get("PYTHONPATH", ""))))


def _early(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those variables that the imports may read; an empty one says nothing."""
    return {
        name: value
        for name, value in variables.items()
        if value and (name.startswith(_READ_AT_ONCE) or not name.startswith(_READ_LATER))
    }


@cache
def server() -> _Server:
    """Return the server of this process, started at the first use."""
    started = _Server()
    atexit.register(started.end)
    return started
