"""Starts programs on the stand-in by forking a process that has imported PyTorch already.

`python -m tests.standin.fork_server FD` reads requests from the socket FD until that is closed; see
forks.py, which asks. For each it forks the launcher, which forks the program: two processes, as
`python -m tests.standin` has them, with the launcher's own code. What a program finds is what the
start of a Python of its own would give it, but for the modules that are imported here.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import array
import builtins
import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gmlake.standin import control, launcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST_REQUEST: Final = 1 << 17
STREAMS: Final = 3
"""Standard input, output and error."""


def _prepare() -> None:
    """Import what nearly every program imports first, and start nothing."""
    import torch
    import torch._dynamo  # as the first optimizer does

    import gmlake  # noqa: F401 (the programs use it)
    from gmlake import _core  # noqa: F401

    if torch.cuda.is_initialized() or len(list(Path("/proc/self/task").iterdir())) > 1:
        sys.exit("fork server: something was started that a fork does not take along")
    gc.collect()
    gc.freeze()  # what is collected in a fork would have to be copied


def _receive(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next request and its files: the connection and the streams; None: the end."""
    text, files, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 1 + STREAMS)
    return (json.loads(text), files) if text else None


@dataclass(frozen=True)
class _Forked:
    """A program for the launcher, forked before the launcher began, which waits to be told."""

    pid: int
    orders: int

    def begin(self, program: Sequence[str], variables: Mapping[str, str]) -> _Forked:
        """Tell it what it is."""
        with os.fdopen(self.orders, "w", encoding="utf-8") as file:
            json.dump([list(program), dict(variables)], file)
        return self

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def send_signal(self, number: int, /) -> None:
        os.kill(self.pid, number)


def _launch(request: dict[str, Any], connection: socket.socket, forked: _Forked) -> NoReturn:
    """Be the launcher; tell the connection the exit code in the end."""
    code: Any = 1
    try:
        vars(launcher)["start"] = forked.begin
        code = launcher.main(request["arguments"])
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(array.array("i", [code]).tobytes())
        os._exit(code)


def _fork_program() -> _Forked | int:
    """Fork; return the program to the launcher, and the end of its orders to the program."""
    orders, told = os.pipe()
    pid = os.fork()
    if pid:
        os.close(orders)
        return _Forked(pid, told)
    os.close(told)
    return orders


def _become(orders: int) -> None:
    """Run the program that the orders name, in this process; return where it ends."""
    with os.fdopen(orders, encoding="utf-8") as file:
        text = file.read()
    if not text:
        return  # the launcher has refused
    program, variables = json.loads(text)
    _set_variables(variables)
    control.read_settings()
    _draw_anew()
    path = program[0]
    sys.argv = program
    sys.path[0] = str(Path(path).parent)
    main = ModuleType("__main__")
    vars(main).update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = main
    exec(compile(Path(path).read_bytes(), path, "exec"), vars(main))  # noqa: S102


def _draw_anew() -> None:
    """Forget the seeds that all forks have; Python does that by itself."""
    import numpy as np
    import torch

    torch.default_generator.seed()
    np.random.seed()  # noqa: NPY002 (a program may use the old way)


def _set_variables(variables: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def _begin(request: dict[str, Any], files: list[int]) -> int:
    """Be the launcher of one request; only the program returns, with the end of its orders."""
    connection = socket.socket(fileno=files[0])
    os.setsid()
    for number, file in enumerate(files[1:]):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(request["folder"])
    forked = _fork_program()
    if isinstance(forked, int):
        connection.close()
        return forked
    _set_variables(request["variables"])
    connection.sendall(array.array("i", [os.getpid()]).tobytes())
    _launch(request, connection, forked)


def _reap(*_: object) -> None:
    """Let no launcher stay a zombie; who asked is told by the launcher itself how it ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _serve(requests: socket.socket) -> int | None:
    """Fork for each request; return in a program, and at the end."""
    signal.signal(signal.SIGCHLD, _reap)
    while received := _receive(requests):
        request, files = received
        if os.fork() == 0:
            requests.close()
            return _begin(request, files)
        for file in files:
            os.close(file)
    return None


def main() -> None:
    _prepare()
    requests = socket.socket(fileno=int(sys.argv[1]))
    orders = _serve(requests)
    if orders is not None:
        _become(orders)


if __name__ == "__main__":
    main()
