"""Whose a frame of a call path is, and which frame of a path a person would name.

A frame is a text, "function  file:line"; a path has the innermost first. Python's own files,
PyTorch's, those of libraries, those that start a program and those that a compiler wrote are told
by where they lie; frames of C have no Python behind them. What is left is the user's.

Among the user's frames the script decides: the outermost, after whatever started it. Its project is
the folder around it; a library's checkout, or a copy below third_party, is part of the project only
if the script lies in it, too. The innermost frame of the project is the user's line.
"""

from __future__ import annotations

import posixpath
import re
import sys
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MOST_KNOWN: Final = 1 << 15


class Origin(IntEnum):
    """Where the code of a frame comes from."""

    NATIVE = 0
    """C, C++, CUDA, or no file at all."""
    PYTHON = 1
    """Python itself."""
    STARTER = 2
    """What starts programs: torchrun, IPython, a debugger, gmlake."""
    COMPILED = 3
    """Written by inductor, Triton, dynamo, or another generator."""
    TORCH = 4
    LIBRARY = 5
    TEXT = 6
    """A program given as a text, with python -c or exec()."""
    PROMPT = 7
    """A cell of a notebook, or a line at a prompt."""
    PROJECT = 8
    """A file of Python that is none of the above."""


@dataclass(frozen=True)
class Frame:
    """A frame and whose it is.

    text: as recorded. function, file, line: its parts; file with slashes. owner: the name of the
    library. shown: how many characters of the file to leave out where a library's is shown.
    checkouts: folders of libraries around the file; is_apart: whether they are, wherever
    the script lies.
    """

    text: str
    function: str
    file: str
    line: str
    origin: Origin
    owner: str = ""
    skipped: int = 0
    checkouts: tuple[str, ...] = ()
    is_apart: bool = False

    @property
    def folder(self) -> str:
        """The folder of the file, with a slash at its end if it is not empty."""
        return self.file[: self.file.rfind("/") + 1]


@lru_cache(maxsize=_MOST_KNOWN)
def frame_of(text: str) -> Frame:
    """Return what is known of a frame."""
    function, _, place = text.rpartition("  ")
    file, _, line = place.rpartition(":")
    file = file.replace("\\", "/")
    origin, owner, skipped = _origin(function, file, line)
    checkouts = _checkouts(file) if origin is Origin.PROJECT else ()
    is_apart = any(not _IN_HOME.search(folder) for folder in checkouts)
    return Frame(text, function, file, line, origin, owner, skipped, checkouts, is_apart)


# ---- one frame

_PROMPT: Final = re.compile(
    r"^<(stdin|python-input|ipython-input|input|console|command-|cell|timed |magic-|doctest )"
    r"|/ipykernel_\d+/|/\.ipykernel/|/ipython-input-|/__marimo__cell_"
)
_STARTER: Final = re.compile(
    r"/s?bin/[^/.]+$|/Scripts/[^/]+$|\.exe/__main__\.py$"
    r"|/(debugpy|pydevd?|pydevd_\w+)/|/helpers/pydev/|-server/extensions/|/\.vscode/extensions/"
    r"|^/databricks/(?!driver/)|/(pyspark|gmlake/commands|src/gmlake)/"
)
_COMPILED: Final = re.compile(
    r"/torchinductor_[^/]*/|/\w*fx_codegen/|/\.?triton/(?:cache/|\d+/)|/inductor_cache/|/torch_compile_cache/"
    r"|/([a-z2-7]{2})/c\1[a-z2-7]{27,}\.py$"
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
_PYTHON: Final = re.compile(
    r"/lib(64)?/(python|pypy)\d[^/]*/|/python\d+\.zip/"
    rf"|/[Ll]ib/({'|'.join(map(re.escape, sorted(sys.stdlib_module_names)))})(/|\.py$)"
)
_INSTALLED: Final = re.compile(
    r".*/(?:site-packages|dist-packages|archive-v0/[^/]+|__pypackages__/[^/]+/lib|transformers_modules"
    r"|\.cache/torch/hub)/|.*/[^/]+\.(?:egg|whl)/"
)
_SYSTEM: Final = re.compile(
    r"^/(usr/(lib|lib64|libexec|share|include)|nix/store|snap)/|/\.(pyenv|conda|cache)/"
    r"|/\.local/(lib|share/uv)/"
)
_OF_PYTHON: Final = re.compile(r"\.(py|pyw|ipynb)$")
_BAZEL: Final = ".runfiles/"

_TORCH: Final = frozenset(("torch", "triton", "functorch", "torchgen"))
_STARTERS: Final = frozenset(
    (
        *("IPython", "_pytest", "absl", "anyio", "asgiref", "click", "celery"),
        *("cloudpickle", "dask", "debugpy", "decorator", "distributed", "fastapi"),
        *("fire", "flask", "gevent", "gmlake", "google", "gradio", "gunicorn", "hydra"),
        *("invoke", "ipykernel", "ipykernel_launcher", "joblib", "jsonargparse"),
        *("lightning_sdk", "luigi", "multiprocess", "nest_asyncio", "omegaconf"),
        *("papermill", "pluggy", "prefect", "pydantic", "pydevd", "pytest", "ray"),
        *("sacred", "simple_parsing", "starlette", "streamlit", "submitit", "tornado"),
        *("tqdm", "traitlets", "typer", "tyro", "uvicorn", "uvloop", "wandb", "wrapt"),
        *("zmq", "colabtools", "marimo", "nbclient"),
    )
)
"""Packages that call the program, or pass its calls on."""


def _origin(function: str, file: str, line: str) -> tuple[Origin, str, int]:
    """Return where a frame is from, its library, and where the name of a library's file begins."""
    if not file or "::" in function or "(" in function or file == "??":
        return Origin.NATIVE, "", 0
    if _PROMPT.search(file):
        return Origin.PROMPT, "", 0
    if file.startswith("<"):
        if file == "<string>" and not function.startswith("__"):
            return Origin.TEXT, "", 0
        return (Origin.PYTHON if file.startswith("<frozen ") else Origin.COMPILED), "", 0
    if not _OF_PYTHON.search(file) and not _is_plain_script(file, line):
        return (Origin.STARTER if _STARTER.search(file) else Origin.NATIVE), "", 0
    return _of_python(file)


def _is_plain_script(file: str, line: str) -> bool:
    """Whether a file without an ending may be a script: one that has a folder and a line."""
    name = file.rpartition("/")[2]
    return "/" in file and "." not in name and line not in ("", "0")


def _of_python(file: str) -> tuple[Origin, str, int]:  # noqa: PLR0911 (an answer each)
    installed = _INSTALLED.match(file)
    if installed:
        skipped = installed.end()
        package = file[skipped:].partition("/")[0].removesuffix(".py")
        if package in _TORCH:
            return Origin.TORCH, "torch", skipped
        return (Origin.STARTER if package in _STARTERS else Origin.LIBRARY), package, skipped
    source = _TORCH_SOURCE.search(file)
    if source:
        return Origin.TORCH, "torch", file.index("torch/", source.start())
    if _PYTHON.search(file):
        return Origin.PYTHON, "", 0
    if _COMPILED.search(file):
        return Origin.COMPILED, "", 0
    if _STARTER.search(file):
        return Origin.STARTER, "", 0
    if _SYSTEM.search(file) and _BAZEL not in file:
        return Origin.LIBRARY, file.rpartition("/")[0], 0
    return Origin.PROJECT, "", 0


_HOME: Final = re.compile(
    r"^(?:/|[A-Z]:/)?(?:[^/]*/|(?:home|[Uu]sers|data|mnt|fsx|scratch)/[^/]*/)?$"
)
"""Folders that hold many projects."""

_IN_HOME: Final = re.compile(
    _HOME.pattern.removesuffix("$") + r"(external|extern|deps|vendor)/[^/]*/$", re.IGNORECASE
)
"""Below them, such a folder may as well hold a project."""

# ---- libraries that are not installed, but lie in folders of their own

_VENDORED: Final = frozenset(
    (
        *("third_party", "thirdparty", "3rdparty", "3rd_party", "vendor", "vendored"),
        *("_vendor", "external", "externals", "extern", "submodules", "deps"),
    )
)
_BETWEEN: Final = frozenset(("src", "python", "lib", "py"))
_GENERAL: Final = frozenset(
    (
        *("src", "python", "lib", "py", "code", "app", "apps", "model", "models", "data"),
        *("utils", "core", "common", "train", "project", "home", "root", "user", "users"),
        *("work", "workspace", "tests"),
    )
)
"""Names of folders that tell nothing, even if one lies in another of its name."""
_LIBRARIES: Final = frozenset(
    (
        *("accelerate", "apex", "axolotl", "bitsandbytes", "colossalai", "deepspeed"),
        *("detectron2", "diffusers", "fairseq", "flashattn", "functorch", "lightning"),
        *("litgpt", "lmdeploy", "mamba", "megatron", "mmcv", "mmdet", "mmengine", "nemo"),
        *("openclip", "peft", "pytorch3d", "pytorchlightning", "sentencetransformers"),
        *("sglang", "timm", "torchao", "torchaudio", "torchtitan", "torchtune"),
        *("torchvision", "transformerengine", "transformers", "trl", "unsloth", "verl"),
        *("vllm", "xformers"),
    )
)
"""Packages that are often installed from a checkout whose folder has another name."""


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")


def _checkouts(file: str) -> tuple[str, ...]:
    """Return the folders of libraries around a file, each with a slash at its end.

    Such a folder has a package of its own name in it, or a well-known one, or lies in a folder for
    what others wrote.
    """
    parts = file.split("/")[:-1]
    ends: set[int] = set()
    known = 0
    for place, part in enumerate(parts):
        if part.lower() in _VENDORED:
            ends.add(min(place + 2, len(parts)))
        below = place + 1
        if below < len(parts) and parts[below] in _BETWEEN:
            below += 1
        name = _plain(part)
        if below < len(parts) and name == _plain(parts[below]) and name not in _GENERAL:
            ends.add(place + 1)
        if place and name in _LIBRARIES:
            known = place - 1 if parts[place - 1] in _BETWEEN else place
    if known and not any(end >= known for end in ends):
        ends.add(known)
    return tuple("/".join(parts[:end]) + "/" for end in sorted(ends))


# ---- a path

_IN_PROJECT: Final = re.compile(
    r"(.*/)(scripts?|bin|tools?|examples?|train|training|src|experiments?|benchmarks?|tests?|apps?"
    r"|cli|cmd|recipes?|entrypoints?|notebooks?|pytorch)/$"
)
"""Folders in which the scripts of a project lie, below the project's own."""


def own_frame(frames: Iterable[str]) -> str:
    """Return the frame of a path that is the user's line; "" if none is the user's."""
    found = own_of([frame_of(text) for text in frames])
    return found.text if found else ""


def named_frame(frames: Iterable[str]) -> str:
    """Return the frame of a path that a person would name: the user's, else a library's, else "".

    Of libraries, the innermost frame of the one that was called first.
    """
    path = [frame_of(text) for text in frames]
    found = own_of(path) or library_of(path) or torch_of(path)
    return found.text if found else ""


def own_of(path: Sequence[Frame]) -> Frame | None:
    """Return the user's line of a path."""
    users = _users(path)
    if not users:
        return None
    script = users[-1]
    if script.origin is Origin.PROJECT and script.function != "<module>":
        plain = [frame for frame in users if not frame.is_apart]
        script = (plain or users)[-1]
        return next((one for one in users if _is_beside(one, script)), script)
    if script.origin is not Origin.PROJECT:
        return next((one for one in users if not one.is_apart), script)
    root = _root_of(script, users)
    return next((one for one in users if _is_beside(one, script) and _is_in(one, root)), script)


def _users(path: Sequence[Frame]) -> list[Frame]:
    """Return the user's frames after what started the program, innermost first."""
    users: list[Frame] = []
    texts: list[Frame] = []
    is_process = False
    for frame in path:
        if frame.origin >= Origin.PROMPT:
            users.append(frame)
        elif frame.origin is Origin.TEXT:
            texts.append(frame)
        elif users and frame.function == "_run_code" and "runpy" in frame.file:
            break
        elif "/multiprocessing/" in frame.file:
            is_process = True
    return users or ([] if is_process else texts)


def _is_beside(frame: Frame, script: Frame) -> bool:
    """Whether no library's folder lies around a frame that does not lie around the script, too."""
    return all(script.file.startswith(folder) for folder in frame.checkouts)


def _root_of(script: Frame, users: Iterable[Frame]) -> str:
    """Return the folder of the project that a script belongs to."""
    around = {folder for frame in users for folder in frame.checkouts}
    around = {folder for folder in around if script.file.startswith(folder)}
    if around:
        return max(around, key=len)
    root = script.folder
    while (match := _IN_PROJECT.match(root)) and not _HOME.search(match[1]):
        root = match[1]
    return root


def _is_in(frame: Frame, root: str) -> bool:
    """Whether a frame belongs to a project: its file lies in the folder, or not far from it."""
    if frame.origin is not Origin.PROJECT or frame.file.startswith(root):
        return True
    shared = posixpath.commonprefix([frame.folder, root])
    return not _HOME.search(shared[: shared.rfind("/") + 1])


def library_of(path: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the library that was called first."""
    libraries = [frame for frame in path if frame.origin is Origin.LIBRARY]
    if not libraries:
        return None
    first = libraries[-1].owner
    return next(frame for frame in libraries if frame.owner == first)


_PASSING: Final = re.compile(
    r"torch/(_dynamo|_inductor|_functorch|_ops|_compile|distributed/(run|launcher|elastic)"
    r"|multiprocessing/spawn|utils/(_contextlib|data/_utils))[/.]"
)
_PASSES_ON: Final = frozenset(
    (
        *("_call_impl", "_wrapped_call_impl", "wrapper", "wrapped", "inner", "_fn"),
        *("decorate_context", "__torch_function__", "handle_torch_function"),
        *("profile_hook_step", "__call__", "apply"),
    )
)
_TELLING: Final = (
    re.compile(r"^torch::autograd::(?!Engine)\S*Backward\S*::apply\b"),
    re.compile(r"^at::_ops::\S+::(call|redispatch)\b"),
    re.compile(r"^(at::|torch::autograd::)"),
    re.compile(r"^(torch::(?!unwind|CapturedTraceback)|c10::)"),
)


def torch_of(path: Sequence[Frame]) -> Frame | None:
    """Return the function of PyTorch that was called first; else the operator, in C++."""
    outer = [frame for frame in reversed(path) if frame.origin is Origin.TORCH]
    for frame in outer:
        if frame.function not in _PASSES_ON and not _PASSING.search(frame.file):
            return frame
    written = [frame for frame in path if frame.origin is Origin.COMPILED and "/" in frame.file]
    if written or outer:
        return (written or outer)[0]
    native = [frame for frame in path if frame.origin is Origin.NATIVE]
    for pattern in _TELLING:
        for frame in native:
            if pattern.search(frame.function):
                return frame
    return None


def compiled_of(path: Sequence[Frame], own: Frame) -> Frame | None:
    """Return the frame in a file that inductor or Triton wrote, if `own` called it."""
    for frame in path:
        if frame is own:
            return None
        if frame.origin is Origin.COMPILED and "/" in frame.file:
            return frame
    return None
