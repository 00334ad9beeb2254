"""Reads plain data from a pickle without ever importing, calling or constructing anything else.

The standard unpickler is a small machine that can call any function by name. This one knows only
the instructions that build dict, list, tuple, str, int, float, bool and None; every other is an
error. Nothing is reserved on the word of a length field: lengths are compared with what is left
of the file first, and the memo is a dict. What a single byte can build is counted, so that memory
stays proportional to the file.

Recorded files are read by the same machine in C (gmlake._core.read_plain_pickle), which knows the
instructions that they consist of and leaves everything else, errors included, to this one.

Shared objects stay shared (a file can name one list a million times at two bytes each): code that
walks the result must bound its own work.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from gmlake import _core
from gmlake.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PARTS: Final = 1 << 26
"""Most parts in one file, however large; some 8 million recorded events.

A part is what takes up to 80 bytes of memory: a list, a tuple, an empty dict, an entry of the memo.
A dict that is not empty is four of them.
"""

BYTES_PER_PART: Final = 5
"""A recorded snapshot has 6 and more; memory stays below 24 times the file."""

_FREE_PARTS: Final = 1 << 16
_MAX_MARKS: Final = 1 << 16
_PARTS_OF_FULL_DICT: Final = 4

MAX_INT_BYTES: Final = 16
_MAX_LINE: Final = 1 << 16
_MAX_DIGITS: Final = 40
_MAX_KEY: Final = 1 << 31
_HIGHEST_PROTOCOL: Final = 5

_FLOAT = struct.Struct(">d")
_INT4 = struct.Struct("<i")

Dict = dict[object, object]
List = list[object]


def most_parts(file_bytes: int) -> int:
    """Return how many parts a file of that size may have."""
    return min(_FREE_PARTS + file_bytes // BYTES_PER_PART, MAX_PARTS)


class _Done(Exception):  # noqa: N818 (ends the loop; not an error)
    """The STOP instruction was reached."""


class _Machine:
    """One run over one file: a stack, the stacks below the open marks, and the memo."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.stack: List = []
        self.marks: list[List] = []
        self.memo: dict[int, object] = {}
        self.parts_left = most_parts(len(data))

    def run(self) -> object:
        data = self.data
        table = _TABLE
        try:
            while True:
                code = data[self.position]
                self.position += 1
                table[code](self)
        except _Done:
            return self.stack.pop()
        except IndexError:
            if self.position >= len(data):
                reason = "the file ends in the middle of the pickle: it was cut off"
            else:
                reason = "not a valid pickle: a value is missing from the stack"
            raise self.error(reason) from None

    def error(self, reason: str) -> TraceError:
        return TraceError(f"{reason} (at byte {self.position})")

    # ---- the file

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.data):
            reason = f"the pickle asks for {count} bytes more than the file has: cut off or damaged"
            raise self.error(reason)
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.position, self.position + _MAX_LINE)
        if end < 0:
            raise self.error("not a valid pickle: a text value does not end")
        text = self.data[self.position : end]
        self.position = end + 1
        return text

    def decimal(self, text: bytes) -> int:
        digits = text.strip().removesuffix(b"L")
        if len(digits) > _MAX_DIGITS:
            raise self.error("an integer is longer than 16 bytes")
        try:
            return int(digits)
        except ValueError:
            raise self.error("not a valid pickle: an integer is not a number") from None

    def text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self.error("not a valid pickle: a text is not UTF-8") from None

    # ---- the stack

    def push(self, value: object) -> None:
        self.stack.append(value)

    def push_container(self, value: object) -> None:
        self.spend(1)
        self.stack.append(value)

    def spend(self, parts: int) -> None:
        self.parts_left -= parts
        if self.parts_left < 0:
            raise self.error("refused: more lists, tuples and dicts than a file of this size holds")

    def above_mark(self) -> List:
        items = self.stack
        if not self.marks:
            raise self.error("not a valid pickle: a mark is missing")
        self.stack = self.marks.pop()
        return items

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.above_mark()

    def extend(self, items: List) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise self.error("not a valid pickle: items are added to something not a list")
        target.extend(items)

    def update(self, items: List) -> None:
        target = self.stack[-1]
        if type(target) is not dict:
            raise self.error("not a valid pickle: keys are added to something not a dict")
        if len(items) % 2:
            raise self.error("not a valid pickle: a key has no value")
        if items and not target:
            self.spend(_PARTS_OF_FULL_DICT - 1)
        for index in range(0, len(items), 2):
            key = items[index]
            # Other keys could be built to collide, or nest so deep that hashing overflows.
            if type(key) is not str and not (type(key) is int and -_MAX_KEY <= key < _MAX_KEY):
                raise self.error("a dict has a key that is neither a text nor a small integer")
            target[key] = items[index + 1]

    # ---- the memo

    def remember(self, index: int) -> None:
        value = self.stack[-1]
        if index not in self.memo:
            self.spend(1)
        self.memo[index] = value

    def recall(self, index: int) -> None:
        try:
            self.stack.append(self.memo[index])
        except KeyError:
            raise self.error("not a valid pickle: it names a value it has not stored") from None


# ---- one function per instruction, named as in the standard library's pickletools


def _proto(m: _Machine) -> None:
    version = m.number(1)
    if version > _HIGHEST_PROTOCOL:
        raise m.error(f"pickle protocol {version} is not known; write protocol 4")


def _frame(m: _Machine) -> None:
    if m.number(8) > len(m.data) - m.position:
        raise m.error("the file ends in the middle of the pickle: it was cut off")


def _stop(m: _Machine) -> None:
    if not m.stack or m.marks:
        raise m.error("not a valid pickle: it ends with an open mark or without a value")
    raise _Done


def _mark(m: _Machine) -> None:
    if len(m.marks) >= _MAX_MARKS:
        raise m.error(f"refused: more than {_MAX_MARKS} open marks")
    m.marks.append(m.stack)
    m.stack = []


def _int(m: _Machine) -> None:
    text = m.line()
    m.push({b"00": False, b"01": True}[text] if text in (b"00", b"01") else m.decimal(text))


def _float(m: _Machine) -> None:
    try:
        m.push(float(m.line()))
    except ValueError:
        raise m.error("not a valid pickle: a number cannot be read") from None


def _long(m: _Machine, count: int) -> None:
    if count > MAX_INT_BYTES:
        raise m.error(f"an integer of {count} bytes; at most {MAX_INT_BYTES} are accepted")
    m.push(int.from_bytes(m.take(count), "little", signed=True))


def _unicode(m: _Machine) -> None:
    try:
        m.push(str(m.line(), "raw-unicode-escape"))
    except UnicodeDecodeError:
        raise m.error("not a valid pickle: a text cannot be read") from None


def _tuple(m: _Machine, count: int) -> None:
    if len(m.stack) < count:
        raise m.error("not a valid pickle: a value is missing from the stack")
    items = m.stack[-count:]
    del m.stack[-count:]
    m.push_container(tuple(items))


def _tuple_above_mark(m: _Machine) -> None:
    m.push_container(tuple(m.above_mark()))


def _list_above_mark(m: _Machine) -> None:
    m.push_container(m.above_mark())


def _dict_above_mark(m: _Machine) -> None:
    items = m.above_mark()
    m.push_container({})
    m.update(items)


def _setitem(m: _Machine) -> None:
    value = m.stack.pop()
    key = m.stack.pop()
    m.update([key, value])


def _memoize(m: _Machine) -> None:
    m.remember(len(m.memo))


def _pop_mark(m: _Machine) -> None:
    m.above_mark()


def _text_of(length_bytes: int) -> Callable[[_Machine], None]:
    def read(m: _Machine) -> None:
        m.push(m.text(m.take(m.number(length_bytes))))

    return read


_INSTRUCTIONS: Final[dict[bytes, Callable[[_Machine], None]]] = {
    b"\x80": _proto,
    b"\x95": _frame,
    b".": _stop,
    b"(": _mark,
    b"0": _Machine.pop,
    b"1": _pop_mark,
    b"2": lambda m: m.push(m.stack[-1]),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),  # noqa: FBT003 (the value itself)
    b"\x89": lambda m: m.push(False),  # noqa: FBT003 (the value itself)
    b"I": _int,
    b"J": lambda m: m.push(_INT4.unpack(m.take(4))[0]),
    b"K": lambda m: m.push(m.number(1)),
    b"M": lambda m: m.push(m.number(2)),
    b"L": lambda m: m.push(m.decimal(m.line())),
    b"\x8a": lambda m: _long(m, m.number(1)),
    b"\x8b": lambda m: _long(m, m.number(4)),
    b"F": _float,
    b"G": lambda m: m.push(_FLOAT.unpack(m.take(8))[0]),
    b"V": _unicode,
    b"X": _text_of(4),
    b"\x8c": _text_of(1),
    b"\x8d": _text_of(8),
    b")": lambda m: m.push_container(()),
    b"t": _tuple_above_mark,
    b"\x85": lambda m: _tuple(m, 1),
    b"\x86": lambda m: _tuple(m, 2),
    b"\x87": lambda m: _tuple(m, 3),
    b"]": lambda m: m.push_container([]),
    b"a": lambda m: m.extend([m.stack.pop()]),
    b"e": lambda m: m.extend(m.above_mark()),
    b"l": _list_above_mark,
    b"}": lambda m: m.push_container({}),
    b"s": _setitem,
    b"u": lambda m: m.update(m.above_mark()),
    b"d": _dict_above_mark,
    b"p": lambda m: m.remember(m.decimal(m.line())),
    b"q": lambda m: m.remember(m.number(1)),
    b"r": lambda m: m.remember(m.number(4)),
    b"\x94": _memoize,
    b"g": lambda m: m.recall(m.decimal(m.line())),
    b"h": lambda m: m.recall(m.number(1)),
    b"j": lambda m: m.recall(m.number(4)),
}

_CALLS: Final = {
    b"c": "GLOBAL",
    b"\x93": "STACK_GLOBAL",
    b"i": "INST",
    b"o": "OBJ",
    b"R": "REDUCE",
    b"b": "BUILD",
    b"\x81": "NEWOBJ",
    b"\x92": "NEWOBJ_EX",
    b"P": "PERSID",
    b"Q": "BINPERSID",
    b"\x82": "EXT1",
    b"\x83": "EXT2",
    b"\x84": "EXT4",
}


def _refuse(m: _Machine) -> None:
    code = m.data[m.position - 1 : m.position]
    if code in _CALLS:
        reason = f"refused: the pickle wants to load or call code (instruction {_CALLS[code]})"
    else:
        reason = f"refused: pickle instruction 0x{code.hex()} builds something not plain data"
    raise m.error(reason)


_TABLE: Final = [_INSTRUCTIONS.get(bytes([code]), _refuse) for code in range(256)]


def read_pickle(data: bytes) -> object:
    """Return the plain data that `data`, a pickle of protocol 0 to 5, describes.

    Only dict (with text or small integer keys), list, tuple, str, int (16 bytes at most), float,
    bool and None are built. Raises TraceError, with one line, for anything else.
    """
    found = _core.read_plain_pickle(data, most_parts(len(data)))
    return _Machine(data).run() if found is None else found[0]


def read_slowly(data: bytes) -> object:
    """Do the same without the help of C."""
    return _Machine(data).run()
