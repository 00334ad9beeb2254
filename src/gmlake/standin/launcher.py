"""Starts a Python program on the stand-in GPU, and reads what its processes did to the device.

The program runs in a process of its own, since a library can only be preloaded at the start. The
programs that it starts (torchrun, multiprocessing) run on the stand-in too.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gmlake.errors import Error

MISUSE_EXIT: Final = 70
"""The exit code of a program that succeeded but broke a rule of CUDA on the way."""

CUDA: Final = "13"
"""The major version of CUDA whose functions the stand-in has."""

_INSTALL: Final = (
    "install one with: pip install torch --index-url https://download.pytorch.org/whl/cu130"
)


MOST_DEVICES: Final = 8  # of one host, as most have them


class StandinMissingError(Error):
    """This gmlake has no stand-in, or this Python no CUDA build of PyTorch; says what to do."""


def _is_library(path: Path) -> bool:
    if not os.access(path, os.R_OK) or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def find_library() -> Path:
    """Return the stand-in that came with gmlake, or the one that GMLAKE_STANDIN_LIBRARY names.

    Raises StandinMissingError.
    """
    named = os.environ.get("GMLAKE_STANDIN_LIBRARY")
    path = Path(named) if named else Path(__file__).with_name("libcuda.so.1")
    if _is_library(path):
        return path
    if named:
        raise StandinMissingError(
            f"{path}, which GMLAKE_STANDIN_LIBRARY names, is no shared library"
        )
    raise StandinMissingError(
        f"this gmlake was built without its stand-in GPU, as no PyTorch for CUDA {CUDA} was there: "
        "with one installed, install gmlake again with --force-reinstall --no-deps"
    )


def check_pytorch() -> str:
    """Return the version of the CUDA build of PyTorch that this Python has, without importing it.

    Raises StandinMissingError if it has none, or one for another CUDA than the stand-in's.
    """
    found = find_spec("torch")
    if found is None or not found.origin:
        raise StandinMissingError(f"PyTorch is not installed in {sys.prefix}; {_INSTALL}")
    folder = Path(found.origin).parent
    text = (folder / "version.py").read_text(encoding="utf-8")
    version = _assigned(text, "__version__")
    cuda = _assigned(text, "cuda")
    if not cuda or not (folder / "lib" / "libtorch_cuda.so").exists():
        raise StandinMissingError(
            f"PyTorch {version} is a build without CUDA, which asks no GPU for memory; {_INSTALL}"
        )
    if cuda.partition(".")[0] != CUDA:
        raise StandinMissingError(
            f"PyTorch {version} is built for CUDA {cuda}, and the stand-in GPU has CUDA {CUDA}; "
            f"{_INSTALL}"
        )
    return version


def _assigned(text: str, name: str) -> str:
    """Return the text that a line of a Python file assigns to a name; "" if none does."""
    found = re.search(rf"^{name}\b[^=\n]*= *['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found[1] if found else ""


def variables_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings as variables of the environment."""
    return {f"GMLAKE_STANDIN_{name.upper()}": value for name, value in settings.items()}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process on the stand-in.

    settings: GMLAKE_STANDIN_* without the prefix, in lower case, as in {"capacity": "80GiB"}.
    """
    variables = dict(os.environ)
    earlier = variables.get("LD_PRELOAD", "")
    library = find_library()
    if str(library) not in earlier.split(":"):
        # The second is looked for by name alone, which finds what is loaded already.
        libraries = (library, library.with_name("libnvidia-ml.so.1"), earlier)
        variables["LD_PRELOAD"] = ":".join(filter(None, map(str, libraries)))
    variables |= variables_of(settings)
    # Triton, which torch.compile uses, looks for the driver's library by itself.
    variables.setdefault("TRITON_LIBCUDA_PATH", str(find_library().parent))
    # PyTorch's kernels made at run time are kept for a GPU, not for this.
    variables.setdefault("USE_PYTORCH_KERNEL_CACHE", "0")
    return variables


_FORMAT: Final = b"gmlake stand-in report 1"
_ENTRY: Final = struct.Struct("<56sQ")  # a name and a count; the first has the format and misuses


def read_reports(folder: Path) -> tuple[Counter[str], int]:
    """Return how often the processes of a program called what, and how many rules they broke."""
    total: Counter[str] = Counter()
    misuses = 0
    for path in folder.glob("*.calls"):
        data = path.read_bytes()
        (head, found), *entries = _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])
        if head.rstrip(b"\0") != _FORMAT:
            continue  # a process that ended before it began to count
        misuses += found
        for name, count in entries:
            if count:
                total[name.rstrip(b"\0").decode()] += count
    return total, misuses


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gmlake.standin",
        description="Run a Python program on a GPU that is not there. Kernels do nothing; memory, "
        "streams, events and captures behave. Nothing that is timed here is GPU time.",
    )
    add = parser.add_argument
    add("--devices", metavar="N", help="how many devices there are (1)")
    add("--capacity", metavar="SIZE", help="memory of each, as 80GiB (64GiB; backed: 1GiB)")
    add("--shared", metavar="FILE", help="processes that name the same file share the devices")
    add("--backed", action="store_const", const="1", help="device memory has bytes")
    add(
        "--without-vmm",
        dest="virtual_memory",
        action="store_const",
        const="0",
        help="virtual memory management is refused",
    )
    add("--name", help="what the devices are called")
    add("--capability", metavar="X.Y", help="compute capability (9.0)")
    add("--pace", choices=("eager", "lag", "manual"), help="when work is done (lag)")
    add("--lag", metavar="N", help="operations of a stream that are pending (32)")
    add("--abort", action="store_const", const="1", help="abort at the first misuse")
    add("--calls", action="store_true", help="print how often what was called")
    add("-m", dest="module", nargs=argparse.REMAINDER, help="a module to run, with its arguments")
    add("-c", dest="code", nargs=argparse.REMAINDER, help="code to run, with its arguments")
    add("script", nargs=argparse.REMAINDER, help="a script to run, with its arguments")
    return parser


def _program(options: argparse.Namespace) -> list[str] | None:
    if options.module:
        return ["-m", *options.module]
    if options.code:
        return ["-c", *options.code]
    return list(options.script) or None


@contextmanager
def on_signals(numbers: Iterable[int], handle: Callable[[int, object], None]) -> Iterator[None]:
    """Call this for the signals, within the block."""
    earlier = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def start(program: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `python *program` with these variables."""
    return subprocess.Popen([sys.executable, *program], env=variables)  # noqa: S603 (the user's own)


def run(program: Sequence[str], settings: Mapping[str, str]) -> tuple[int, Counter[str], int]:
    """Run `python *program` on the stand-in; return its exit code, calls and broken rules.

    The code is negative for a signal, as subprocess has it. Raises StandinMissingError.
    """
    with tempfile.TemporaryDirectory(prefix="gmlake-standin-") as folder:
        process = start(program, environment({**settings, "report": folder}))
        # The program decides what comes of what asks this process to end. Ctrl-C in a terminal
        # reaches it by itself, and a second time does no harm.
        ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with on_signals(ending, lambda number, _: process.send_signal(number)):
            code = process.wait()
        calls, misuses = read_reports(Path(folder))
    variables = environment(settings)
    if os.access(variables.get("GMLAKE_STANDIN_SHARED", ""), os.F_OK):  # they may have been killed
        last = [sys.executable, "-S", "-c", "import ctypes; ctypes.CDLL(None).cuInit(0)"]
        subprocess.run(last, env=variables, stderr=subprocess.DEVNULL, check=False)  # noqa: S603
    return code, calls, misuses


def name_of_signal(number: int) -> str:
    """Return the name of a signal, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main(arguments: Sequence[str]) -> int:
    """Run what the command line names; return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    program = _program(options)
    if program is None:
        parser.error("which program? Name a script, or -m MODULE, or -c CODE")
    others = ("calls", "module", "code", "script")
    given = {name: value for name, value in vars(options).items() if name not in others}
    settings = {name: value for name, value in given.items() if value is not None}
    for name, value in settings.items():
        if not value:
            parser.error(f"--{name} needs a value")
    try:
        code, calls, misuses = run(program, settings)
    except (StandinMissingError, OSError) as error:
        sys.stderr.write(f"stand-in: {error}\n")
        return 2
    if options.calls:
        width = max(map(len, calls), default=0)
        for name, count in calls.most_common():
            sys.stderr.write(f"{name:{width}} {count:>12,}\n")
    if misuses:
        sys.stderr.write(f"stand-in: rules of CUDA broken: {misuses}, see above\n")
    if code < 0:
        sys.stderr.write(f"stand-in: ended by {name_of_signal(-code)}\n")
        return 128 - code
    return MISUSE_EXIT if misuses and code == 0 else code


def variables_of_rank(rank: int, ranks: int, devices: int) -> dict[str, str]:
    """Return the variables of one process of a job, as torchrun sets them."""
    return {
        "WORLD_SIZE": str(ranks),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % devices),
        "LOCAL_WORLD_SIZE": str(devices),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "GMLAKE_FORECAST_RANKS": str(ranks),
    }
