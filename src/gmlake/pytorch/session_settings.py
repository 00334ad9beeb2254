"""The settings of gmlake inside PyTorch, from arguments or from environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from gmlake import _core
from gmlake.allocator_conf import read_allocator_conf
from gmlake.printable import printable
from gmlake.settings import as_typed, parse_capacity, policies, settings_of
from gmlake.units import exact_size

_Value = TypeVar("_Value")

HANDLE_TYPES: Final = ("posix_fd", "fabric")
DEFAULT_POLICY: Final = "stitch"
GRANULARITY_BYTES: Final = 2 << 20
"""The granularity of existing devices; a device is not queried before it is used."""
POLICY, CAPACITY = "GMLAKE_POLICY", "GMLAKE_CAPACITY"
KNOBS, HANDLES = "GMLAKE_SET", "GMLAKE_HANDLE_TYPES"
ON_OOM, ON_OOM_LINES = "GMLAKE_ON_OOM", "GMLAKE_ON_OOM_LINES"
SHARE: Final = "GMLAKE_SHARE"
HOST: Final = "GMLAKE_HOST"
_TERMS: Final = {"priority": (-1000, 1000), "weight": (1, 1000)}


@dataclass(frozen=True)
class Given:
    """The settings given as arguments of a call; None or missing: not given."""

    policy: str | None = None
    capacity: int | str | None = None
    handle_types: str | None = None
    knobs: Mapping[str, int | str] = field(default_factory=dict)
    on_oom: str | Path | None = None
    share: str | None = None


@dataclass(frozen=True)
class Terms:
    """Which of the processes that share a device gives first: see session.enabled()."""

    priority: int = 0
    weight: int = 1

    def __str__(self) -> str:
        return f"device,priority={self.priority},weight={self.weight}"


@dataclass(frozen=True)
class Settings:
    """How gmlake serves a process.

    policy: one of gmlake.policies().
    capacity_bytes: the most memory to hold on each device; 0: all of it. handle_type: how physical
    memory must be exportable, "posix_fd" or "fabric"; "": as the device supports. knobs: by the
    names of gmlake.knobs().
    on_oom: the absolute path of the file to write when memory runs out; "": none.
    on_oom_lines: whether that file has source lines; set by the environment only.
    share: how devices are shared with other processes; None: not at all.
    """

    policy: str = DEFAULT_POLICY
    capacity_bytes: int = 0
    handle_type: str = ""
    knobs: Mapping[str, int] = field(default_factory=dict)
    on_oom: str = ""
    on_oom_lines: bool = False
    share: Terms | None = None

    @classmethod
    def of(cls, given: Given | None = None) -> Settings:
        """Return the settings, taking those not given from the environment.

        Each knob comes from the arguments, else from GMLAKE_SET, else from PYTORCH_ALLOC_CONF,
        which sets PyTorch's own algorithm, the one that serves outside of sessions. Raises
        ValueError, with the name of the wrong variable.
        """
        variables = _Variables(os.environ)
        given = given or Given()
        fallback = cls(
            policy=variables.read(POLICY, _policy, DEFAULT_POLICY),
            capacity_bytes=variables.read(CAPACITY, parse_capacity, 0),
            handle_type=variables.read(HANDLES, _handle_type, ""),
            knobs={
                **read_allocator_conf(os.environ),
                **variables.read(KNOBS, _knobs_of_text, {}),
                **variables.read(HOST, lambda text: check_knobs({"host": text}), {}),
            },
            on_oom=variables.read(ON_OOM, new_file, ""),
            on_oom_lines=variables.read(ON_OOM_LINES, _switch, fallback=False),
            share=variables.read(SHARE, _share, None),
        )
        return with_changes(fallback, given)

    def to_environment(self) -> dict[str, str]:
        """Return the variables that give another process these settings."""
        variables = {POLICY: self.policy}
        if self.capacity_bytes:
            variables[CAPACITY] = str(self.capacity_bytes)
        if self.handle_type:
            variables[HANDLES] = self.handle_type
        if self.on_oom:
            variables[ON_OOM] = self.on_oom
        if self.on_oom_lines:
            variables[ON_OOM_LINES] = "1"
        if self.share:
            variables[SHARE] = str(self.share)
        if self.knobs:
            parts = (f"{name}={as_typed(name, value)}" for name, value in self.knobs.items())
            variables[KNOBS] = ",".join(parts)
        return variables

    def difference(self, other: Settings) -> str:
        """Describe how the settings for opening lakes differ from `other`; "" if they do not."""
        parts = [
            f"{name} is {mine or 'not set'}, not {theirs or 'unset'}"
            for name, mine, theirs in (
                ("policy", self.policy, other.policy),
                ("capacity", _size(self.capacity_bytes), _size(other.capacity_bytes)),
                ("handle_types", self.handle_type, other.handle_type),
                *(
                    (name, self._typed(name), other._typed(name))
                    for name in sorted({*self.knobs, *other.knobs})
                ),
            )
            if mine != theirs
        ]
        return ", ".join(parts)

    def _typed(self, name: str) -> str:
        return as_typed(name, self.knobs.get(name, ""))


def _size(size_bytes: int) -> str:
    return exact_size(size_bytes) if size_bytes else ""


class _Variables:
    """Environment variables; empty ones count as not set."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._texts = {name: text.strip() for name, text in environment.items() if text.strip()}

    def read(self, name: str, parse: Callable[[str], _Value], fallback: _Value) -> _Value:
        """Return the value of a variable. Raises ValueError, with its name, if that is invalid."""
        if name not in self._texts:
            return fallback
        try:
            return parse(self._texts[name])
        except ValueError as error:
            raise ValueError(f"{name}: {printable(str(error))}") from None


def _text(what: str, given: object, known: tuple[str, ...]) -> str:
    if not isinstance(given, str):
        raise TypeError(f"a {what} is a string, not {given!r}; there are: {' '.join(known)}")
    return given


def _one_of(what: str, text: str, known: tuple[str, ...]) -> str:
    if _text(what, text, known) not in known:
        raise ValueError(f"no {what} is called {text[:60]!r}; there are: {' '.join(known)}")
    return text


def _policy(text: str) -> str:
    return _one_of("policy", text, policies())


def _handle_type(text: str) -> str:
    return _one_of("handle type", text, HANDLE_TYPES)


def _switch(text: str) -> bool:
    return _one_of("switch", text, ("0", "1")) == "1"


_WAYS: Final = ("device",)


def _share(text: str) -> Terms | None:
    """Read "device,priority=0,weight=1", or 0 or 1, which is what users try first."""
    way, *parts = (part.strip() for part in _text("way to share", text, _WAYS).split(","))
    if way in ("", "0") and not parts:
        return None
    _one_of("way to share", "device" if way == "1" else way, _WAYS)
    return Terms(**dict(map(_term, parts)))


def _term(text: str) -> tuple[str, int]:
    name, sign, value = (piece.strip() for piece in text.partition("="))
    if not sign or name not in _TERMS:
        raise ValueError(f"{text[:60]!r} is neither priority=NUMBER nor weight=NUMBER")
    least, most = _TERMS[name]
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ValueError(f"{name}={value[:60]} is no whole number from {least} to {most}")
    return name, number


def new_file(path: str | Path) -> str:
    """Return the absolute path of a file to be written later; ValueError if that is impossible."""
    try:
        absolute = Path(path).absolute()
        is_folder = absolute.is_dir()
    except OSError as error:
        raise ValueError(f"{str(path)[:300]}: {error.strerror}") from None
    if is_folder:
        raise ValueError(f"{str(absolute)[:300]} is a folder; name a file in it, as oom.pickle")
    if not os.access(absolute.parent, os.W_OK):
        raise ValueError(f"{str(absolute.parent)[:300]} is no folder that can be written to")
    return str(absolute)


def _knobs_of_text(text: str) -> dict[str, int]:
    """Read "knob=value,knob=value"."""
    knobs: dict[str, int | str] = {}
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not name or not value:
            raise ValueError(f"{part.strip()[:60]!r} is not knob=value; separate several by commas")
        knobs[name] = value
    return check_knobs(knobs)


def check_knobs(knobs: Mapping[str, int | str]) -> dict[str, int]:
    """Return the knobs as numbers; ValueError for an unknown one or a value out of range."""
    settings = settings_of(dict(knobs))
    _core.check_knobs(settings, GRANULARITY_BYTES)
    return dict(settings)


def with_changes(settings: Settings, given: Given) -> Settings:
    """Return the settings with the given ones replaced. Raises ValueError."""
    return Settings(
        policy=settings.policy if given.policy is None else _policy(given.policy),
        capacity_bytes=settings.capacity_bytes
        if given.capacity is None
        else parse_capacity(given.capacity),
        handle_type=settings.handle_type
        if given.handle_types is None
        else _handle_type(given.handle_types),
        knobs={**settings.knobs, **check_knobs(given.knobs)},
        on_oom=settings.on_oom if given.on_oom is None else new_file(given.on_oom),
        on_oom_lines=settings.on_oom_lines,
        share=settings.share if given.share is None else _share(given.share),
    )


_STARTUP: Final = Path(__file__).absolute().parent / "startup"
"""The folder whose sitecustomize activates gmlake in every Python that the program starts."""


def with_startup(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process in which gmlake is activated once PyTorch is imported."""
    folders = [
        folder
        for folder in variables.get("PYTHONPATH", "").split(os.pathsep)
        if folder != str(_STARTUP)
    ]
    if folders == [""]:
        folders = []
    path = os.pathsep.join([str(_STARTUP), *folders])
    return {**variables, "GMLAKE_RUN": "1", "PYTHONPATH": path}


_HANDLES: Final = {"": 0, "posix_fd": 1, "fabric": 8}  # CUmemAllocationHandleType


def configure(settings: Settings) -> None:
    """Set how lakes are opened; ValueError if one is open with other settings."""
    _core.torch_configure(
        "cuda",
        settings.policy,
        settings.capacity_bytes,
        tuple(sorted(settings.knobs.items())),
        _HANDLES[settings.handle_type],
    )
