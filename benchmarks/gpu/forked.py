"""Work in a forked child that has the GPU for itself, and what the driver says is free.

The parent imports everything once and never initialises CUDA, so that a child costs seconds less
than a new process, and what it had of the device is given back when it ends.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = dict[str, Any]

# Without this, asking whether CUDA is there initialises the driver, and no child can use it.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

_LONGEST_WAIT_SECONDS = 5.0
_SLACK_BYTES = 1 << 20


class _Memory(ctypes.Structure):
    """What nvmlDeviceGetMemoryInfo fills, in bytes."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Watch:
    """Reads the free memory of a device from the management library, without using CUDA.

    is_over_by: the bytes by which the library says more than cudaMemGetInfo, which is right.
    """

    def __init__(self, device: int = 0) -> None:
        """`device`: its place among those that CUDA_VISIBLE_DEVICES leaves."""
        self._library: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        self._most_free = self.is_over_by = 0
        named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        number = int(named[device]) if device < len(named) and named[device].isdigit() else device
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            found = library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(
                number, ctypes.byref(self._handle)
            )
        except (OSError, AttributeError):  # no driver, or one that does not say
            return
        if found == 0:
            self._library = library

    def driver(self) -> str:
        """Return the version of the driver; nothing where nobody can say."""
        told = ctypes.create_string_buffer(80)
        if self._library is None or self._library.nvmlSystemGetDriverVersion(told, len(told)):
            return ""
        return told.value.decode()

    def free_bytes(self) -> int | None:
        """Return what is free now; None where nobody can say."""
        told = _Memory()
        if self._library is None or self._library.nvmlDeviceGetMemoryInfo(
            self._handle, ctypes.byref(told)
        ):
            return None
        return int(told.free) - self.is_over_by

    def settled_bytes(self) -> int | None:
        """Return what is free when the last child's memory has come back, or after 5 seconds."""
        end = time.monotonic() + _LONGEST_WAIT_SECONDS
        free = self.free_bytes()
        while free is not None and free + _SLACK_BYTES < self._most_free and time.monotonic() < end:
            time.sleep(0.02)
            free = self.free_bytes()
        self._most_free = max(self._most_free, free or 0)
        return free


def last_line(error: BaseException) -> str:
    """Return the name and the last line of an exception, as Python prints it."""
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]


def _work(work: Callable[[], Answer], answers: int, output: int) -> None:
    """Do the work in the child, its output in a file, and say what came of it in one line."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(old, new)
    try:
        told = work()
    except BaseException as error:  # noqa: BLE001 (whatever it is, the parent wants to know)
        traceback.print_exc()
        told = {"failed": last_line(error)}
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    line = json.dumps(told).encode() + b"\n"
    while line:
        line = line[os.write(answers, line) :]


def _line(pipe: int, end: float) -> bytes:
    """Return a line from a pipe; what came of it where it is closed or time is over."""
    got = b""
    while not got.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
        part = os.read(pipe, 1 << 16) if ready else b""
        if not part:
            break
        got += part
    return got


def in_child(work: Callable[[], Answer], longest_seconds: float) -> Answer:
    """Return what a function tells in a child of its own, or `failed` with a line that says why.

    A failure has the end of what the child printed too, as `output`. `seconds`: from the fork to
    the answer.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    began = time.monotonic()
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                _work(work, writer, output.fileno())
            finally:
                os._exit(0)  # threads and libraries that want to end tidily are not waited for
        os.close(writer)
        line = _line(reader, began + longest_seconds)
        seconds = time.monotonic() - began
        os.close(reader)
        try:  # the child has set its group, or never will
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if line.endswith(b"\n"):
            told: Answer = json.loads(line)
        elif seconds >= longest_seconds:
            told = {"failed": f"took longer than {longest_seconds:g} s"}
        else:
            told = {"failed": f"ended without an answer, status {status}"}
        if "failed" in told:
            output.seek(0)
            told["output"] = output.read().decode(errors="replace").splitlines()[-12:]
    return told | {"seconds": round(seconds, 2)}


def slug(device: str) -> str:
    """Return what files call a device: "h100" for "NVIDIA H100 80GB HBM3"."""
    if "stand-in" in device:
        return "standin"
    found = re.search(r"\b[A-Z]+\d+\w*\b", device)
    return (found[0] if found else device.replace(" ", "_")).lower()


def versions() -> dict[str, str]:
    """Return the versions of what is installed of the packages that measurements depend on."""
    from importlib.metadata import PackageNotFoundError, version

    told = {}
    for name in ("torch", "torchvision", "transformers", "triton", "nvidia-cudnn-cu13"):
        try:
            told[name] = version(name)
        except PackageNotFoundError:
            continue
    return told


def _device() -> Answer:
    import torch

    torch.empty(1, device="cuda")
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    managed = Watch().free_bytes()
    return {
        "device": torch.cuda.get_device_name(),
        "devices": torch.cuda.device_count(),
        "total_bytes": total,
        "free_with_context_bytes": free,
        "reserved_bytes": torch.cuda.memory_reserved(),
        "management_minus_driver_bytes": 0 if managed is None else managed - free,
    }


def probe(longest_seconds: float) -> Answer:
    """Return what the device is, and what a context takes of it, all in bytes.

    Ends the program where no child can use the device.
    """
    watch = Watch()
    before = watch.settled_bytes()
    told = in_child(_device, longest_seconds)
    if "failed" in told:
        raise SystemExit(f"no child can use the GPU: {told['failed']}")
    del told["seconds"]
    if before is not None:
        before -= told["management_minus_driver_bytes"]
        context = before - told["free_with_context_bytes"] - told["reserved_bytes"]
        told |= {"free_before_bytes": before, "context_bytes": context}
    return told | {"driver": watch.driver()}
