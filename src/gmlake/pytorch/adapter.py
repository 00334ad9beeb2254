"""The adapter for the installed PyTorch: the package's, or one compiled once for this user.

The package includes adapters for releases of PyTorch, if it was built with them. If none fits, one
is compiled from the headers of the installed PyTorch, into the user's cache.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import hashlib
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gmlake import owned
from gmlake.printable import printable
from gmlake.pytorch import compiling, notices
from gmlake.pytorch.compiling import AdapterError
from gmlake.pytorch.versions import KNOWN, RANGE


@dataclass(frozen=True)
class Build:
    """The installed PyTorch, identified without importing it."""

    version: str
    cuda: str  # the version of CUDA that it was built for; "" for none
    commit: str
    home: Path

    @property
    def minor(self) -> int:
        """The minor version of PyTorch 2. Raises AdapterError if gmlake does not know it."""
        major, minor = (int(part) for part in self.version.split(".")[:2])
        if major != 2 or minor not in KNOWN:  # noqa: PLR2004
            raise AdapterError(
                f"gmlake's adapter knows PyTorch {RANGE}, and this is {self.version}; "
                "install one of those, or a newer gmlake"
            )
        return minor

    @property
    def exact_file_name(self) -> str:
        """That of an adapter for nothing but its headers, this system and CXX. pre: it is imported.

        Raises AdapterError.
        """
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        libraries = {Path(found).name for found in re.findall(r"\S*/libstdc\+\+\.so\S*", maps)}
        system = "-".join([*(os.confstr("CS_GNU_LIBC_VERSION") or "").split(), *sorted(libraries)])
        parts = compiling.interface(self.home) + os.environ.get("CXX", "").encode()
        digest = hashlib.sha256(parts).hexdigest()[:8]
        return f"{self.file_name.removesuffix('.so')}-{system}-{digest}.so"

    @property
    def file_name(self) -> str:
        """The file name of its adapter. Raises AdapterError."""
        is_release = re.fullmatch(r"[\d.]+(\+cu\d+)?", self.version)
        build = "" if is_release else f"{self.version} {self.commit}"
        return compiling.file_name(self.minor, build)


@dataclass(frozen=True)
class Outlook:
    """How gmlake would serve a process started now on a machine with a GPU.

    torch: PyTorch's version; "" if there is none. source: where its adapter comes from:
    "package", "cache", "compiler", or "" for nowhere. compiler: what starts the C++ compiler; ""
    for none. mode: "native" or "off". why: the reason for "off", and what to do about it.
    """

    torch: str
    source: str
    compiler: str
    mode: str
    why: str


def installed() -> Build | None:
    """Return the installed PyTorch; None if there is none."""
    loaded = sys.modules.get("torch")
    if loaded is not None:
        about = vars(loaded.version)
        home = Path(str(loaded.__file__)).parent
    else:
        spec = find_spec("torch")
        if spec is None or spec.origin is None:
            return None
        home = Path(spec.origin).parent
        about = runpy.run_path(str(home / "version.py"))
    return Build(
        str(about["__version__"]),
        about.get("cuda") or "",
        about.get("git_version") or "",
        home,
    )


def outlook() -> Outlook:
    """Return how gmlake would serve a process, without importing, compiling or writing anything."""
    build, compiler = installed(), ""
    if build is None:
        return Outlook("", "", "", "off", "PyTorch is not installed")
    with suppress(AdapterError):
        compiler = shlex.join(compiling.compiler())
    try:
        return Outlook(build.version, _source(build), compiler, "native", "")
    except AdapterError as error:
        return Outlook(build.version, "", compiler, "off", str(error))


def _source(build: Build) -> str:
    """Return where the adapter comes from. Raises AdapterError if there is none."""
    if not build.cuda:
        raise AdapterError("this PyTorch was built without CUDA")
    name = build.file_name
    if (compiling.SOURCES / name).exists():
        return "package"
    if _is_cached(name):
        return "cache"
    compiling.compiler()
    return "compiler"


def load() -> ctypes.CDLL:
    """Load the adapter for this PyTorch. Raises AdapterError.

    One that was compiled elsewhere may want a newer system, where nodes share a home, or belong to
    another patch release, whose tables of virtual functions may differ. Another one is then
    compiled for exactly this process's.
    """
    build = _installed()
    why = ""
    for is_exact in (False, True):
        try:
            path = find(is_exact=is_exact)
        except AdapterError as error:
            but = f"; the one that is here cannot be loaded: {why}" if why else ""
            raise AdapterError(f"{error}{but}") from None
        if compiling.interface(build.home) not in path.read_bytes():
            why = "it is for other headers of PyTorch"  # what it registers could not be undone
            continue
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            why = printable(str(error))
    raise AdapterError(f"the adapter to PyTorch cannot be loaded: {why}")


def _installed() -> Build:
    build = installed()
    if build is None:
        raise AdapterError("PyTorch is not installed")
    return build


@cache
def find(*, is_exact: bool = False) -> Path:
    """Return the adapter for this PyTorch; if necessary, one process compiles it for all.

    is_exact: one that was compiled with these headers, on a system as this. Raises AdapterError.
    """
    build = _installed()
    name = build.exact_file_name if is_exact else build.file_name
    if (compiling.SOURCES / name).exists():
        return compiling.SOURCES / name

    @cache
    def made() -> bytes:
        return compiling.make(build.home, build.minor)

    try:
        return _kept(name, made)
    except AdapterError:
        raise
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        where = error.filename if isinstance(error, OSError) and error.filename else "the cache"
        why = error.strerror if isinstance(error, OSError) else error
        notices.once(
            "adapter cache",
            f"{where} is not used ({why}), so the adapter to PyTorch is compiled anew in each "
            "process; set XDG_CACHE_HOME to a folder of yours that no other user can write",
        )
    path = Path(tempfile.mkdtemp(prefix="gmlake-")) / name
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    path.write_bytes(made())
    return path


def _cache_folder() -> Path:
    """Raises RuntimeError if there is no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gmlake"


def _is_cached(name: str) -> bool:
    with suppress(OSError, RuntimeError):
        return (_cache_folder() / name).is_file()
    return False


def _kept(name: str, made: Callable[[], bytes]) -> Path:
    """Return the adapter in the user's cache, written now if necessary. Raises OSError.

    The path goes through the folder that was checked, which stays open for that, and through this
    process's number, so that a child process, such as a symbolizer, finds the same file.
    """
    cache_folder = _cache_folder()
    cache_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = owned.open_folder(cache_folder)
    try:
        if not _is_there(folder, name):
            with _locked(folder, f"{name.removesuffix('.so')}.lock"):
                if not _is_there(folder, name):
                    owned.write_file(folder, name, made(), 0o700)
    except BaseException:
        os.close(folder)
        raise
    return Path(f"/proc/{os.getpid()}/fd/{folder}/{name}")


def _is_there(folder: int, name: str) -> bool:
    try:
        os.close(owned.open_file(folder, name))
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _locked(folder: int, name: str) -> Iterator[None]:
    """Hold the lock of a file, which the system releases when the process ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
