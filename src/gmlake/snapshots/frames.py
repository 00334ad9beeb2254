"""Whose a frame of a call path is, and which frame of a path a person would name.

A frame is a text, "function  file:line"; a path has the innermost first. The user's line is the
innermost frame that is not installed, and where its file lies tells that: among packages, in
Python, in a checkout of PyTorch, among what a compiler wrote, in a folder of copies. What else a
folder is called, how deep it lies, and what started the program are no evidence.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

_MOST_KNOWN: Final = 1 << 15


class Origin(IntEnum):
    """Where the code of a frame comes from."""

    NATIVE = 0
    """C, C++, CUDA, or no file at all."""
    PYTHON = 1
    """Python itself, or gmlake."""
    COMPILED = 2
    """Written by inductor, Triton, dynamo, or another generator."""
    TORCH = 3
    LIBRARY = 4
    TEXT = 5
    """A program given as a text, with python -c or exec()."""
    PROMPT = 6
    """A cell of a notebook, or a line at a prompt."""
    PROJECT = 7
    """A file of Python that is none of the above."""


@dataclass(frozen=True)
class Frame:
    """A frame and whose it is.

    text: as recorded. function, file, line: its parts; file with slashes. skipped: how many
    characters of the file to leave out where a library's is shown. copies: the folders around the
    file that hold copies of what others wrote. beside: a folder in which all else is installed, as
    this package is, and the one in which a script of theirs would lie.
    """

    text: str
    function: str
    file: str
    line: str
    origin: Origin
    skipped: int = 0
    copies: tuple[str, ...] = ()
    beside: tuple[str, str] = ("", "")


@lru_cache(maxsize=_MOST_KNOWN)
def frame_of(text: str) -> Frame:
    """Return what is known of a frame."""
    function, _, place = text.rpartition("  ")
    file, _, line = place.rpartition(":")
    file = file.replace("\\", "/")
    origin, skipped = _origin(function, file, line)
    copies = tuple(f"{file[: found.end()]}/" for found in _COPIES.finditer(file))
    place = file[:skipped]  # as `pip install --target` has it; else the src/ of an environment
    found = _ENVIRONMENT.match(place)
    beside = (f"{found[1]}src/", found[1]) if found else (place, place)
    return Frame(text, function, file, line, origin, skipped, copies, beside)


# ---- one frame

_PROMPT: Final = re.compile(
    r"^<(stdin|python-input|ipython-input|input|console|command-|cell|timed |magic-|doctest )"
    r"|/ipykernel_\d+/|/\.ipykernel/|/ipython-input-|/__marimo__cell_"
)
_COMPILED: Final = re.compile(
    r"/torchinductor_[^/]*/|/\w*fx_codegen/|/\.?triton/(?:cache/|\d+/)|/inductor_cache/"
    r"|/\w*compiled?_cache/|/([a-z2-7]{2})/c\1[a-z2-7]{27,}\.py$"
)
_TORCH_SOURCE: Final = re.compile(
    r"(?:^|/)torch/(?:(?:_\w+|amp|ao|autograd|backends|compiler|csrc|cuda|distributed|export|func"
    r"|fx|jit|multiprocessing|onnx|optim|profiler|sparse)/"
    r"|nn/(?:_\w+|attention|backends|cpp|functional|grad|init|intrinsic|modules|parallel|parameter"
    r"|qat|quantiz\w+|utils)[/.]"
    r"|utils/(?:_\w+|backend_registration|benchmark|checkpoint|cpp_extension|data|deterministic|dlpack"
    r"|flop_counter|hooks|jit|module_tracker|serialization|tensorboard|viz|weak)[/.]"
    r"|(?:_\w+|functional|hub|overrides|random|serialization|storage)\.py$)"
)
_MODULES: Final = rf"(?:{'|'.join(sorted(sys.stdlib_module_names))})\.py$"
_PYTHON: Final = re.compile(
    r"/lib(?:64)?/(?:python|pypy)\d(?:\.\d+)?t?/|/python\d+\.zip/"
    rf"|^[A-Za-z]:/.*/[Ll]ib/(?:{_MODULES}|(?:asyncio|concurrent|importlib|multiprocessing|unittest)/)"
    rf"|^{_MODULES}"
)
_INSTALLED: Final = re.compile(
    r".*/(?:site-packages|dist-packages|archive-v0/[^/]+|__pypackages__/[^/]+/lib|transformers_modules"
    r"|torch/hub|hub/[^/]+_(?:main|master)|[^/]+\.(?:egg|whl))/"
)
_SYSTEM: Final = re.compile(
    r"^/(?:usr/(?:s?bin|lib|lib64|libexec|share)|nix/store|snap)/"
    r"|/Scripts/[^/]+-script\.pyw?$|\.exe/__main__\.py$|/extensions/ms-[^/]+/|/helpers/pydev/"
)
"""Programs that are installed: commands, editors and their debuggers."""

_COPIES: Final = re.compile(
    r"/(?:third[-_]?party|3rd[-_]?party|_?vendor(?:ed)?|externals?|extern|submodules|deps|\.cache"
    r"|tmp[a-z0-9_]{8})(?=/)",
    re.IGNORECASE,
)
"""Folders for what others wrote, for what was fetched, and for what a library writes and runs."""

_OF_PYTHON: Final = re.compile(r"\.(py|pyw|ipynb)$")
_COMMAND: Final = re.compile(r"(.*/)bin/([^/.]+)$")
_ENVIRONMENT: Final = re.compile(r"(.*/)[Ll]ib(?:64)?/(?:python[^/]*/)?site-packages/$")
_TORCH: Final = ("torch", "triton", "functorch", "torchgen")


def _origin(function: str, file: str, line: str) -> tuple[Origin, int]:
    """Return where a frame is from, and where the name of a library's file begins."""
    if not file or "::" in function or "(" in function or file == "??":
        return Origin.NATIVE, 0
    if _PROMPT.search(file):
        return Origin.PROMPT, 0
    if file.startswith("<"):
        if file == "<string>" and not function.startswith("__"):
            return Origin.TEXT, 0
        return (Origin.PYTHON if file.startswith("<frozen ") else Origin.COMPILED), 0
    name = file.rpartition("/")[2]
    is_plain = name != file and "." not in name and line not in ("", "0")  # a script, no ending
    return _of_python(file) if is_plain or _OF_PYTHON.search(file) else (Origin.NATIVE, 0)


def _of_python(file: str) -> tuple[Origin, int]:
    if installed := _INSTALLED.match(file):
        package = file[installed.end() :].partition("/")[0].removesuffix(".py")
        known = {"gmlake": Origin.PYTHON, **dict.fromkeys(_TORCH, Origin.TORCH)}
        return known.get(package, Origin.LIBRARY), installed.end()
    if source := _TORCH_SOURCE.search(file):
        return Origin.TORCH, file.index("torch/", source.start())
    _, _, module = file.rpartition("/gmlake/")
    if _PYTHON.search(file) or (module != file and module in _modules()):
        return Origin.PYTHON, 0
    if _COMPILED.search(file):
        return Origin.COMPILED, 0
    return (Origin.LIBRARY if _SYSTEM.search(file) else Origin.PROJECT), 0


@lru_cache(maxsize=1)
def _modules() -> frozenset[str]:
    """Return gmlake's own modules, by which it is known wherever it lies."""
    root = Path(__file__).parents[1]
    return frozenset(file.relative_to(root).as_posix() for file in root.rglob("*.py"))


# ---- a path


def own_frame(frames: Iterable[str]) -> str:
    """Return the frame of a path that is the user's line; "" if none is the user's."""
    found = own_of([frame_of(text) for text in frames])
    return found[0].text if found else ""


def named_frame(frames: Iterable[str]) -> str:
    """Return the frame of a path that a person would name; "" if there is none."""
    found = named_of([frame_of(text) for text in frames])
    return found[0].text if found else ""


def named_of(path: Sequence[Frame]) -> list[Frame]:
    """Return the frames that name a path, innermost first: the line and its callers.

    They are the user's; else those of libraries; else one of PyTorch's; else none.
    """
    found = own_of(path) or [frame for frame in path if frame.origin is Origin.LIBRARY]
    return found or torch_of(path)


def own_of(path: Sequence[Frame]) -> list[Frame]:
    """Return the user's frames of a path, innermost first: those that are not installed."""
    users = [
        frame
        for frame in path
        if frame.origin >= Origin.PROMPT
        and not (frame.function == "<module>" and _is_command(frame, path))
    ]
    if not users:
        return _texts(path)
    script, beside = users[-1].file, {frame.beside for frame in path if frame.skipped}
    return [frame for frame in users if not _is_copy(frame, script, beside)]


def _is_copy(frame: Frame, script: str, beside: Iterable[tuple[str, str]]) -> bool:
    """Whether others wrote a file: it lies in a folder of theirs, and the script does not."""
    return any(not script.startswith(folder) for folder in frame.copies) or any(
        frame.file.startswith(folder) and not script.startswith(around) for folder, around in beside
    )


def _is_command(frame: Frame, path: Sequence[Frame]) -> bool:
    """Whether a script starts a package: one in bin/ beside it, or of its name."""
    found = _COMMAND.match(frame.file)
    return found is not None and any(
        one.file.startswith(f"{found[1]}lib") or one.file.startswith(f"{found[2]}/", one.skipped)
        for one in path
        if one.skipped
    )


def _texts(path: Sequence[Frame]) -> list[Frame]:
    """Return the frames of a program that was given as a text, if it started the process."""
    written = [frame for frame in path if frame.origin > Origin.NATIVE]
    if not written or written[-1].origin is not Origin.TEXT:
        return []
    if any("/multiprocessing/" in frame.file for frame in written):
        return []
    return [frame for frame in written if frame.origin is Origin.TEXT]


_PASSING: Final = re.compile(
    r"torch/(_dynamo|_inductor|_functorch|_ops|_compile|distributed/(run|launcher|elastic)"
    r"|multiprocessing/spawn|utils/(_contextlib|data/_utils))[/.]"
)
_PASSES_ON: Final = re.compile(
    r"^(_call_impl|_wrapped_call_impl|wrapper|wrapped|inner|_fn|decorate_context|profile_hook_step"
    r"|__torch_function__|handle_torch_function|__call__|apply)$"
)
_TELLING: Final = (
    re.compile(r"^torch::autograd::(?!Engine)\S*Backward\S*::apply\b"),
    re.compile(r"^at::_ops::\S+::(call|redispatch)\b"),
    re.compile(r"^(at::|torch::autograd::)"),
    re.compile(r"^(torch::(?!unwind|CapturedTraceback)|c10::)"),
)


def torch_of(path: Sequence[Frame]) -> list[Frame]:
    """Return the function of PyTorch that was called first; else the operator, in C++."""
    outer = [frame for frame in reversed(path) if frame.origin is Origin.TORCH]
    for frame in outer:
        if not _PASSES_ON.search(frame.function) and not _PASSING.search(frame.file):
            return [frame]
    written = [frame for frame in path if frame.origin is Origin.COMPILED and "/" in frame.file]
    if written or outer:
        return (written or outer)[:1]
    native = [frame for frame in path if frame.origin is Origin.NATIVE]
    for pattern in _TELLING:
        for frame in native:
            if pattern.search(frame.function):
                return [frame]
    return []


def compiled_of(path: Sequence[Frame], own: Frame) -> Frame | None:
    """Return the frame in a file that inductor or Triton wrote, if `own` called it."""
    for frame in path:
        if frame is own:
            return None
        if frame.origin is Origin.COMPILED and "/" in frame.file:
            return frame
    return None
