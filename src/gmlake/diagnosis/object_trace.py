"""A trace of objects: a program's accesses to each of its objects in a device's memory.

Its file is a zip of arrays and one JSON, without anything that could run.

    gmobjects.json   {"gmlake": "objects", "version": 1, "name", "names", "labels", "texts",
                     "places"}; a place is [scope, frame, ...], each frame the number of a text
    NAME.npy         apis, objects, accesses, ranges, label_of, place_of: numpy arrays

A reader takes just these members, at most MAX_FILE_BYTES of them, and arrays of just these types.
"""

from __future__ import annotations

import io
import json
import stat
import zipfile
import zlib
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.diagnosis.object_layout import ACCESS, API, OBJECT, RANGE
from gmlake.errors import TraceError

if TYPE_CHECKING:
    from gmlake.trace.layout import Records

VERSION: Final = 1
MAX_FILE_BYTES: Final = 1 << 31
"""Most bytes of a file's members, unpacked."""

MAX_TEXT_BYTES: Final = 1 << 28
"""Most bytes of its JSON."""

_META: Final = "gmobjects.json"
_ARRAYS: Final = (
    ("apis", API),
    ("objects", OBJECT),
    ("accesses", ACCESS),
    ("ranges", RANGE),
    ("label_of", np.dtype("<u4")),
    ("place_of", np.dtype("<u4")),
)
_PACKINGS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEAD_BYTES = 4096  # of an array: more than numpy writes
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same trace makes the same file
_NOT_OURS: Final = (
    "not a trace of objects, or a damaged one; what an allocator recorded does not tell who "
    "accesses memory: `with gmlake.diagnose():` does, and `gmlake view` draws the recording"
)


class Work(IntFlag):
    """The part of training that a call belongs to.

    GRAPH: recorded for a backward pass. BACKWARD: part of one. RETAINS: part of one that keeps its
    graph. EQUAL: a copy with the same layout in memory as its source.
    """

    GRAPH = 1
    BACKWARD = 2
    RETAINS = 4
    EQUAL = 8


class Holder(IntFlag):
    """What holds an object.

    Known for models that were called, optimizers that took a step, and the gradients they used.
    """

    MODEL = 1
    STATE = 2
    GRADIENT = 4


@dataclass(frozen=True, eq=False)
class Notes:
    """Facts beside the records of a trace.

    works: Work of each API. held: Holder of each object. contents: of each object that is made of
    nothing but numbers, the same for the same numbers; else 0. rounds: the APIs at which a model is
    called again, or an optimizer has ended. updates: the APIs at which an optimizer begins.
    """

    works: Records
    held: Records
    contents: Records
    rounds: Records
    updates: Records


@dataclass(frozen=True)
class Place:
    """Where a program is.

    frames: the call path, the innermost first, each as "function  file:line".
    scope: the name of the module whose work it is, "" if there is none.
    """

    frames: tuple[str, ...] = ()
    scope: str = ""


@dataclass(frozen=True, eq=False)
class ObjectTrace:
    """APIs in order of invocation, the objects that they access, and where the program was.

    apis, objects, accesses, ranges: arrays of the records in gmlake.diagnosis.object_layout;
        sizes and offsets are in bytes. An object's `tag` is the number of its place.
    names: of each object, "" if it has none.
    labels: the distinct names of APIs; label_of: the number of each API's.
    places: the distinct places, the first of them nowhere; place_of: the number of each API's.
    name: of the trace, for reports.
    notes: PyTorch's further knowledge; None for other programs, and for a trace from a file.
    """

    apis: Records
    objects: Records
    accesses: Records
    ranges: Records
    names: tuple[str, ...]
    labels: tuple[str, ...]
    label_of: Records
    places: tuple[Place, ...] = (Place(),)
    place_of: Records = field(default_factory=lambda: np.zeros(0, np.uint32))
    name: str = ""
    notes: Notes | None = None

    def __post_init__(self) -> None:
        """Raise TraceError unless the tables fit together. The core checks the rest."""
        for attribute, dtype in _ARRAYS[:4]:
            if getattr(self, attribute).dtype != dtype:
                raise TraceError(f"the {attribute} are not records of {dtype.itemsize} bytes")
        if not len(self.place_of):
            object.__setattr__(self, "place_of", np.zeros(len(self.apis), np.uint32))
        if len(self.names) != len(self.objects):
            raise TraceError(f"{len(self.names)} names for {len(self.objects)} objects")
        _check_numbers(self.label_of, len(self.apis), len(self.labels), "labels")
        _check_numbers(self.place_of, len(self.apis), len(self.places), "places")
        _check_numbers(self.objects["tag"], len(self.objects), len(self.places), "places")

    @cached_property
    def api_of_access(self) -> Records:
        """The number of the API that each access is of."""
        found: Records = np.repeat(np.arange(len(self.apis)), self.apis["access_count"])
        return found

    def label(self, api: int) -> str:
        """Return the name of an API."""
        return self.labels[int(self.label_of[api])]

    def place(self, api: int) -> Place:
        """Return where the program was when it called an API."""
        return self.places[int(self.place_of[api])]

    def object_place(self, number: int) -> Place:
        """Return where the program was when it made an object."""
        return self.places[int(self.objects["tag"][number])]

    def object_name(self, number: int) -> str:
        """Return an object's name, or "object 7"."""
        return self.names[number] or f"object {number}"

    def save(self, path: str | Path) -> None:
        """Write a file, usually named *.gmobjects. Raises OSError, TraceError for too much."""
        text = json.dumps(_meta(self), separators=(",", ":")).encode()
        if len(text) > MAX_TEXT_BYTES:
            raise TraceError(f"names and places of more than {MAX_TEXT_BYTES} bytes")
        arrays = {name: np.asarray(getattr(self, name), dtype) for name, dtype in _ARRAYS}
        if sum(array.nbytes for array in arrays.values()) + len(text) > MAX_FILE_BYTES - (1 << 16):
            raise TraceError(f"a trace of more than {MAX_FILE_BYTES} bytes; split it")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            _write(file, _META, text)
            for name, array in arrays.items():
                out = io.BytesIO()
                np.lib.format.write_array(out, np.ascontiguousarray(array), allow_pickle=False)
                _write(file, f"{name}.npy", out.getvalue())

    @staticmethod
    def load(path: str | Path) -> ObjectTrace:
        """Read such a file. Raises TraceError, with the file's name, for anything else."""
        try:
            return _read(Path(path))
        except TraceError as error:
            raise TraceError(error.reason, event=error.event, path=str(path)) from None
        except MemoryError:
            raise TraceError("needs more memory than this machine has", path=str(path)) from None


def _check_numbers(numbers: Records, rows: int, entries: int, what: str) -> None:
    if len(numbers) != rows:
        raise TraceError(f"{len(numbers)} numbers of {what} for {rows} rows")
    if rows and int(numbers.max()) >= entries:
        raise TraceError(f"a number above those of the {entries} {what}")


# ---- writing


def _write(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    about = zipfile.ZipInfo(name, _EPOCH)
    about.compress_type = zipfile.ZIP_DEFLATED
    about.external_attr = 0o644 << 16
    file.writestr(about, data)


def _meta(trace: ObjectTrace) -> dict[str, Any]:
    texts: dict[str, int] = {}
    places = [
        [place.scope, *(texts.setdefault(frame, len(texts)) for frame in place.frames)]
        for place in trace.places
    ]
    return {
        "gmlake": "objects",
        "version": VERSION,
        "name": trace.name,
        "names": list(trace.names),
        "labels": list(trace.labels),
        "texts": list(texts),
        "places": places,
    }


# ---- reading


def _read(path: Path) -> ObjectTrace:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise TraceError("cannot be read: not a regular file")
        with zipfile.ZipFile(path) as file:
            return _from_zip(file, path.name)
    except zipfile.BadZipFile:
        raise TraceError(_NOT_OURS) from None
    except (OSError, ValueError, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        if isinstance(error, TraceError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"cannot be read: {reason}") from None


def _from_zip(file: zipfile.ZipFile, name: str) -> ObjectTrace:
    members = {about.filename: about for about in file.infolist()}
    wanted = [_META, *(f"{array}.npy" for array, _ in _ARRAYS)]
    for member in wanted:
        if member not in members:
            raise TraceError(f"not a trace of objects: it has no {member}")
    if sum(members[member].file_size for member in wanted) > MAX_FILE_BYTES:
        raise TraceError(f"has more than {MAX_FILE_BYTES} bytes unpacked; no more are read")
    meta = _read_meta(_member(file, members[_META], MAX_TEXT_BYTES))
    arrays = {
        array: _read_array(_member(file, members[f"{array}.npy"], MAX_FILE_BYTES), dtype, array)
        for array, dtype in _ARRAYS
    }
    return ObjectTrace(
        apis=arrays["apis"],
        objects=arrays["objects"],
        accesses=arrays["accesses"],
        ranges=arrays["ranges"],
        label_of=arrays["label_of"],
        place_of=arrays["place_of"],
        names=_texts(meta, "names"),
        labels=_texts(meta, "labels"),
        places=_read_places(meta),
        name=_text(meta.get("name"), "name") or name,
    )


def _member(file: zipfile.ZipFile, about: zipfile.ZipInfo, limit: int) -> bytes:
    if about.compress_type not in _PACKINGS:
        raise TraceError(f"{about.filename} is packed in a way that is not read")
    if about.file_size > limit:
        raise TraceError(f"{about.filename} has {about.file_size} bytes; at most {limit} are read")
    with file.open(about) as member:
        data = member.read(about.file_size + 1)
    if len(data) != about.file_size:
        raise TraceError(f"{about.filename} is longer or shorter than announced")
    return data


def _read_array(data: bytes, dtype: np.dtype[Any], name: str) -> Records:
    """Read an array of one dimension; the header is the only thing that numpy parses."""
    file = io.BytesIO(data)
    if data[6:8] != b"\1\0" or int.from_bytes(data[8:10], "little") > _HEAD_BYTES:
        raise TraceError(f"{name}.npy is of another version")
    try:
        np.lib.format.read_magic(file)
        shape, _, found = np.lib.format.read_array_header_1_0(file)
    except Exception:  # noqa: BLE001 (numpy evaluates the text: errors of any kind)
        raise TraceError(f"{name}.npy is no array") from None
    if found != dtype or len(shape) != 1:
        raise TraceError(f"{name}.npy holds something else than {name}")
    start = file.tell()
    if len(data) - start != shape[0] * dtype.itemsize:
        raise TraceError(f"{name}.npy is cut off")
    return np.frombuffer(data, dtype, offset=start)


def _read_meta(data: bytes) -> dict[str, Any]:
    try:
        meta = json.loads(data)
    except (ValueError, RecursionError):
        meta = None
    if not isinstance(meta, dict) or meta.get("gmlake") != "objects":
        raise TraceError(f"not a trace of objects: {_META} cannot be read")
    if meta.get("version") != VERSION:
        raise TraceError(
            f"a trace of version {str(meta.get('version'))[:20]}; this gmlake reads {VERSION}"
        )
    return meta


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TraceError(f"{_META} has no proper {what}")
    return value


def _texts(meta: dict[str, Any], key: str) -> tuple[str, ...]:
    values = meta.get(key)
    if not isinstance(values, list):
        raise TraceError(f"{_META} has no proper {key}")
    return tuple(_text(value, key) for value in values)


def _read_places(meta: dict[str, Any]) -> tuple[Place, ...]:
    texts, rows = _texts(meta, "texts"), meta.get("places")
    if not isinstance(rows, list):
        raise TraceError(f"{_META} has no proper places")
    return tuple(_read_place(row, texts) for row in rows)


def _read_place(row: object, texts: tuple[str, ...]) -> Place:
    if not isinstance(row, list) or not row or not all(type(n) is int for n in row[1:]):
        raise TraceError(f"{_META} has no proper places")
    if any(not 0 <= number < len(texts) for number in row[1:]):
        raise TraceError(f"{_META} has a place with a text that is not there")
    return Place(tuple(texts[number] for number in row[1:]), _text(row[0], "places"))
