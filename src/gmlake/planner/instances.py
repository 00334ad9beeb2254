"""Instances of dynamic storage allocation as CSV, plain or gzip: id,lower,upper,size."""

from __future__ import annotations

import io
import os
import stat
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from gmlake.errors import TraceError
from gmlake.file_bytes import GZIP, UnreadableError, contents, unpack_gzip
from gmlake.planner.plan_layout import LIFETIME
from gmlake.trace.layout import LARGEST_SIZE, Records

if TYPE_CHECKING:
    from numpy.typing import NDArray


COLUMNS: Final = ("id", "lower", "upper", "size")
MAX_FILE_BYTES: Final = 1 << 30
"""Most bytes of a file that are read, unpacked ones too."""

_HEAD_BYTES = 4096
_LARGEST_TIME = 2**62
_NUMBERS = COLUMNS[1:]
_PLAIN = b"0123456789,- \n"


@dataclass(frozen=True, eq=False)
class Instance:
    """Buffers to place: dtype LIFETIME, times counted from the earliest `lower`.

    ids are those of the file, as text.
    """

    lifetimes: Records
    ids: tuple[str, ...]
    name: str = ""

    def save_placement(self, path: str | Path, offsets: NDArray[np.uint64]) -> None:
        """Write the instance with a column `offset`. Times begin at 0. Raises OSError."""
        rows = zip(
            self.ids,
            self.lifetimes["start"].tolist(),
            self.lifetimes["end"].tolist(),
            self.lifetimes["size_bytes"].tolist(),
            offsets.tolist(),
            strict=True,
        )
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        Path(path).write_text("id,lower,upper,size,offset\n" + text, encoding="utf-8")


def is_instance(path: str | Path) -> bool:
    """Return whether a file looks like an instance: by its name, or by its first line.

    False for an unreadable file; reading it then reports the error.
    """
    name = str(path).lower()
    if name.endswith((".csv", ".csv.gz")):
        return True
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 (takes what Path() refuses)
            return False
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head.startswith(GZIP):
            head = zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
    except (OSError, ValueError, zlib.error):
        return False
    first = head.partition(b"\n")[0].decode("ascii", "replace")
    return set(_NUMBERS) <= set(_fields(first))


def load_instance(path: str | Path) -> Instance:
    """Read an instance. The columns may be in any order, among others.

    lower and upper are whole numbers, a buffer lives on [lower, upper); size is in bytes. Raises
    TraceError with the file's name, and the line if there is one.
    """
    try:
        return _parse(_contents(Path(path)), _name_of(path))
    except MemoryError:
        raise TraceError("needs more memory than this machine has", path=str(path)) from None
    except TraceError as error:
        raise TraceError(error.reason, path=str(path)) from None


def _name_of(path: str | Path) -> str:
    return os.fsencode(Path(path).name).decode("utf-8", "backslashreplace")


# ---- the file


def _contents(path: Path) -> bytes:
    try:
        data = contents(path, MAX_FILE_BYTES)
        if data.startswith(GZIP):
            data = unpack_gzip(data, MAX_FILE_BYTES)
    except UnreadableError as error:
        raise TraceError(str(error)) from None
    if not data.strip():
        raise TraceError("the file is empty")
    return data


# ---- the text


def _fields(line: str) -> list[str]:
    return [field.strip().lower() for field in line.split(",")]


def _parse(data: bytes, name: str) -> Instance:
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(f"not text in UTF-8: byte {error.start}") from None
    first, _, body = text.partition("\n")
    where = _columns(_fields(first))
    width = len(_fields(first))
    if not body.strip():
        raise TraceError("holds a header and no buffer")
    table = _read_fast(body, where, width)
    if table is None:
        ids, numbers = _read_slowly(body, where, width)
    else:
        ids, numbers = tuple(map(str, table[:, 0].tolist())), table[:, 1:]
    return Instance(_lifetimes(numbers, ids, body), ids, name)


def _columns(header: list[str]) -> list[int]:
    """Return the positions of the four columns."""
    for name in COLUMNS:
        if header.count(name) != 1:
            found = ",".join(header)[:80]
            how = "no" if name not in header else "more than one"
            reason = f"line 1: {how} column {name!r}; the header has to name id,lower,upper,size"
            raise TraceError(f"{reason}, not {found!r}")
    return [header.index(name) for name in COLUMNS]


def _read_fast(body: str, where: list[int], width: int) -> NDArray[np.int64] | None:
    """Return the four columns as numbers; None for anything unusual, including text ids.

    Only text in a plain table's characters is passed to numpy, whose integer parser crashes on text
    beyond ASCII in 2.x.
    """
    if not body.isascii() or body.encode().translate(None, _PLAIN):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = np.loadtxt(
                io.StringIO(body),
                dtype=np.int64,
                delimiter=",",
                comments=None,
                usecols=where,
                ndmin=2,
            )
    except (ValueError, OverflowError, Warning):
        return None
    if body.count(",") != len(table) * (width - 1):
        return None
    return table


def _rows(body: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not empty, with its number in the file."""
    for line, row in enumerate(body.split("\n"), start=2):
        if row.strip():
            yield line, row


def _read_slowly(
    body: str, where: list[int], width: int
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Read line by line; raises TraceError for the first line that is wrong."""
    ids: list[str] = []
    numbers: list[list[int]] = []
    for line, row in _rows(body):
        fields = [field.strip() for field in row.split(",")]
        if len(fields) != width:
            raise TraceError(f"line {line}: {len(fields)} fields, the header has {width}")
        ids.append(fields[where[0]])
        pairs = zip(_NUMBERS, where[1:], strict=True)
        numbers.append([_number(fields[place], name, line) for name, place in pairs])
    return tuple(ids), np.array(numbers, np.int64).reshape(-1, 3)


def _number(text: str, name: str, line: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise TraceError(f"line {line}: {name} is {text[:40]!r}, not a whole number")
    if len(digits) > 20 or abs(int(text)) > _LARGEST_TIME:  # noqa: PLR2004 (digits of 2^64)
        raise TraceError(f"line {line}: {name} is {text[:40]}, outside -2^62 to 2^62")
    return int(text)


# ---- what it says


def _lifetimes(numbers: NDArray[np.int64], ids: tuple[str, ...], body: str) -> Records:
    lower, upper, size = numbers.T

    def fail(bad: NDArray[np.bool_], what: str) -> None:
        if bad.any():
            _fail_at(int(np.argmax(bad)), ids, body, what)

    fail((np.abs(lower) > _LARGEST_TIME) | (np.abs(upper) > _LARGEST_TIME), "a time above 2^62")
    fail(upper <= lower, "upper is not above lower")
    fail((size < 1) | (size > LARGEST_SIZE), "size is outside 1 to 2^48")
    _, first = np.unique(np.array(ids), return_index=True)
    if len(first) != len(ids):
        repeated = np.ones(len(ids), np.bool_)
        repeated[first] = False
        fail(repeated, "an id that was used before")
    result = np.zeros(len(lower), LIFETIME)
    result["start"] = lower - lower.min()
    result["end"] = upper - lower.min()
    result["size_bytes"] = size
    return result


def _fail_at(row: int, ids: tuple[str, ...], body: str, what: str) -> NoReturn:
    """Raise for a row, with its line."""
    line, _ = next(islice(_rows(body), row, None))
    raise TraceError(f"line {line} (id {ids[row][:40]!r}): {what}")
