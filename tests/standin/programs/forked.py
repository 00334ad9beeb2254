"""Tells what it finds when it begins, as JSON, and ends as it is told.

The argument names one of the functions below.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
import ctypes
import json
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gmlake
from gmlake.standin import control

OF_ONE_PROCESS = {"GMLAKE_STANDIN_REPORT", "PYTEST_CURRENT_TEST", "OPENBLAS_NUM_THREADS"}
kept: list[torch.Tensor] = []
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)


def drawn() -> dict[str, Any]:
    """Return what is drawn without a seed."""
    return {
        "torch": torch.randint(1 << 60, (1,)).item(),
        "python": random.getrandbits(60),
        "numpy": int(np.random.randint(1 << 60)),  # noqa: NPY002 (as a program may)
    }


def found() -> dict[str, Any]:
    """Return what is told to a process by who starts it."""
    before = [torch.cuda.is_initialized(), gmlake.is_enabled(), control.misuses()]
    listed = list(Path("/proc/self/fd").iterdir())
    files = {file.name: str(file.readlink()) for file in listed if file.is_symlink()}
    return {
        "before": before,
        "main": [__name__, __file__, vars(sys.modules["__main__"])["found"] is found],
        "words": sys.argv,
        "path": sys.path,
        "folder": str(Path.cwd()),
        "variables": {name: os.environ[name] for name in {*os.environ} - OF_ONE_PROCESS},
        "files": {name: text.partition(":")[0] for name, text in files.items()},
        "leader": os.getsid(0) == os.getpgid(0) == os.getppid(),
        "signals": [str(signal.getsignal(number)) for number in SIGNALS],
        "blocked": [str(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "threads": threading.active_count(),
        "devices": [torch.cuda.device_count(), torch.cuda.get_device_name()],
        "memory": torch.cuda.mem_get_info(),
        "calls": sorted(name for name in control.calls() if "Register" not in name),
    }


def misused() -> None:
    ctypes.CDLL(None).cudaFree(ctypes.c_void_p(4096))


def failed() -> None:
    raise ValueError("as wanted")


def exited() -> None:
    sys.exit(7)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()


def ended() -> None:
    """End with a thread, a hook and a tensor left."""
    atexit.register(sys.stderr.write, "the hook\n")
    thread = threading.Thread(target=lambda: sys.stderr.write("the thread\n"))
    threading.Timer(0.1, thread.start).start()
    kept.append(torch.ones(10, device="cuda"))


TOLD = {each.__name__: each for each in (found, drawn)}
ENDINGS = {each.__name__: each for each in (misused, failed, exited, killed, interrupted, ended)}

if __name__ == "__main__":
    print(json.dumps(TOLD.get(sys.argv[1], dict)()), flush=True)
    ENDINGS.get(sys.argv[1], dict)()
