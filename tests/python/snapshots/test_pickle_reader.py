"""The unpickler: equal to pickle on plain data, and harmless on everything else."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import struct
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmlake import TraceError, _core
from gmlake.snapshots.opening import read_pickle

if TYPE_CHECKING:
    from pathlib import Path

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.lists(inner, max_size=6).map(tuple)
        | st.dictionaries(st.text() | st.integers(-(2**31), 2**31 - 1), inner, max_size=6)
    ),
    max_leaves=40,
)


@given(plain, st.integers(2, 5))
def test_equals_pickle_on_plain_data(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    result = read_pickle(data)
    assert result == value
    assert repr(result) == repr(pickle.loads(data))


def test_equals_pickle_on_recorded_snapshots(recorded_trace: Path) -> None:
    data = recorded_trace.read_bytes()
    assert read_pickle(data) == pickle.loads(data)


def test_keeps_sharing_and_cycles() -> None:
    shared: list[Any] = [1]
    shared.append(shared)
    result: Any = read_pickle(pickle.dumps([shared, shared], 4))
    assert result[0] is result[1]
    assert result[0][1] is result[0]


class _Payload:
    """Writes a file when a careless reader unpickles it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_never_calls_anything(tmp_path: Path, protocol: int) -> None:
    victim = tmp_path / "owned"
    data = pickle.dumps({"segments": [_Payload(str(victim))]}, protocol)
    with pytest.raises(TraceError, match="wants to load or call code"):
        read_pickle(data)
    assert not victim.exists()
    pickle.loads(data)
    assert victim.exists(), "the payload is harmless, so this test proves nothing"


_PLAIN_OPCODES = {
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE"),
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE"),
    *("EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("EMPTY_DICT", "SETITEM", "SETITEMS"),
    *("BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
}
# Of protocols 0 and 1, or of what no recording has: texts of 4 GiB, values that are taken back.
_NEVER_WRITTEN = {
    *("INT", "LONG", "FLOAT", "UNICODE", "GET", "PUT", "LIST", "DICT"),
    *("POP", "POP_MARK", "DUP", "LONG4", "BINUNICODE8"),
}


@pytest.mark.parametrize(
    "opcode", [o for o in pickletools.opcodes if o.name not in _PLAIN_OPCODES], ids=lambda o: o.name
)
def test_every_other_instruction_is_refused(opcode: pickletools.OpcodeInfo) -> None:
    arguments = b"\x01os\nsystem\n" + b"\x00" * 16
    data = b"\x80\x04N(" + opcode.code.encode("latin-1") + arguments + b"."
    with pytest.raises(TraceError, match="refused"):
        read_pickle(data)


class Thing:
    """What a pickle would build by more than plain data."""

    def __init__(self) -> None:
        self.held = 1


class ByNew:
    """What protocol 2 builds by __new__ with arguments, protocol 4 by names too."""

    def __getnewargs_ex__(self) -> tuple[tuple[int], dict[str, int]]:
        return (1,), {"held": 2}

    def __new__(cls, *_: object, **__: object) -> ByNew:  # noqa: PYI034
        return super().__new__(cls)


class ByPerson(pickle.Pickler):
    """Names everything that is no text by a persistent id."""

    def persistent_id(self, obj: Any) -> Any:
        return "id" if isinstance(obj, Thing) else None


def by_person(protocol: int) -> bytes:
    file = io.BytesIO()
    ByPerson(file, protocol).dump([Thing()])
    return file.getvalue()


# Well formed, so that nothing but the instruction itself is a reason to refuse them.
BUILDERS = {
    "GLOBAL": pickle.dumps(os.system, 2),
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "REDUCE": pickle.dumps(Thing(), 0),
    "BUILD": pickle.dumps(Thing(), 1),
    "NEWOBJ": pickle.dumps(Thing(), 2),
    "NEWOBJ_EX": pickle.dumps(ByNew(), 4),
    "INST": b"(ios\nsystem\n.",
    "OBJ": b"(cos\nsystem\no.",
    "PERSID": by_person(0),
    "BINPERSID": by_person(4),
    "EXT1": b"\x80\x02\x82\x01.",
    "EXT2": b"\x80\x02\x83\x01\x00.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "EMPTY_SET": pickle.dumps({1, 2}, 4),
    "FROZENSET": pickle.dumps(frozenset({1}), 4),
    "BYTEARRAY8": pickle.dumps(bytearray(b"1"), 5),
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "READONLY_BUFFER": b"\x80\x05N\x98.",
    "ADDITEMS": b"\x80\x04\x8f(K\x01\x90.",
    "STRING": b"S'text'\n.",
    "BINSTRING": b"T\x01\x00\x00\x00a.",
    "SHORT_BINSTRING": b"U\x01a.",
    "SHORT_BINBYTES": pickle.dumps(b"1", 4),
    "BINBYTES": pickle.dumps(b"1" * 300, 4),
    "BINBYTES8": b"\x80\x04\x8e\x01\x00\x00\x00\x00\x00\x00\x001.",
}


@pytest.mark.parametrize("name", BUILDERS)
def test_what_builds_more_than_plain_data_is_refused_where_it_is_well_formed(name: str) -> None:
    data = BUILDERS[name]
    assert name in {opcode.name for opcode, _, _ in pickletools.genops(data)}
    with pytest.raises(TraceError, match="refused"):
        read_pickle(data)


def test_nothing_that_builds_is_left_out() -> None:
    others = {o.name for o in pickletools.opcodes} - _PLAIN_OPCODES - _NEVER_WRITTEN
    assert others <= BUILDERS.keys()


def test_every_truncation_is_one_line() -> None:
    data = pickle.dumps({"segments": [(1, 2.5, "text", 2**40)], "x": [None, True]}, 4)
    for length in range(len(data)):
        with pytest.raises(TraceError, match=r"^[^\n]+$"):
            read_pickle(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04X\xff\xff\xff\xffabc.",
        b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.",
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b".",
        b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
        b"\x80\x04\x8b\xff\xff\xff\x7f" + b"\x01" * 64 + b".",
        b"\x80\x04\x8a\xff" + b"\x01" * 255 + b".",
        b"L" + b"9" * 100000 + b"L\n.",
        b"I" + b"9" * 41 + b"\n.",
        b"V" + b"a" * 100000,
        b"\x80\x09N.",
        b"F1.x\n.",
        b"Ix\n.",
        b"\x80\x04\x8c\x01\xff.",
        b"Vab\\ud8\n.",
        b"",
        b".",
        b"N",
        b"(N.",
        b"t.",
        b"N\x87.",
        b"Na.",
        b"NNs.",
        b"}(Nu.",
        b"}N(NNu.",
        b"(Nd.",
        b"h\x00.",
        b"g-1\n.",
        b"j\xff\xff\xff\xff.",
        b"2.",
        b"0.",
        b"1.",
        b"}))s.",
        b"}(]Nu.",
        b"}GAAAAAAAANs.",
        b"}\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fNs.",
        b"}\x8a\x05\0\0\0\x80\0Ns.",
    ],
    ids=range(36),
)
def test_nonsense_is_one_short_line(data: bytes) -> None:
    with pytest.raises(TraceError, match=r"^[^\n]{1,160}$"):
        read_pickle(data)


def test_memory_follows_the_file_not_its_claims() -> None:
    huge_memo = b"\x80\x04" + b"Nr" + struct.pack("<I", 0xFFFFFFFF) + b"."
    tracemalloc.start()
    with pytest.raises(TraceError, match="leaves gaps"):
        read_pickle(huge_memo)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_bomb_of_shared_lists_stays_small() -> None:
    value: Any = ["x"]
    for _ in range(60):
        value = [value] * 10
    data = pickle.dumps(value, 4)
    begin = time.process_time()
    result = read_pickle(data)
    assert time.process_time() - begin < 30  # as a tree it has 10 ** 60 lists
    assert isinstance(result, list)


def test_deep_nesting_neither_recurses_nor_crashes() -> None:
    depth = 80_000
    assert isinstance(read_pickle(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."), list)
    assert isinstance(read_pickle(b"\x80\x04N" + b"\x85" * depth + b"."), tuple)


def outcome(data: bytes) -> str:
    """The text of the error, or nothing where a value was read."""
    try:
        read_pickle(data)
    except TraceError as error:
        return str(error)
    return ""


@given(st.binary(max_size=200))
def test_random_bytes_give_a_value_or_one_line(data: bytes) -> None:
    assert "\n" not in outcome(data)


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), 2**63, 255, -1, 0], ids=hex)
def test_whole_numbers_of_64_bits_are_read(value: int) -> None:
    for protocol in range(2, 6):
        assert read_pickle(pickle.dumps([value], protocol)) == [value]


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 2**70, -(2**100)], ids=hex)
def test_larger_ones_are_refused(value: int) -> None:
    with pytest.raises(TraceError, match="more than 64 bits"):
        read_pickle(pickle.dumps([value], 4))


@pytest.mark.parametrize(
    ("value", "parts"), [([[]], 4), ({"a": 1}, 6), (((1,),), 4), ([1, 1], 2)], ids=repr
)
def test_parts_are_counted(value: Any, parts: int) -> None:
    data = pickle.dumps(value, 4)
    assert _core.read_plain_pickle(data, parts) == value
    with pytest.raises(ValueError, match="more lists, tuples and dicts"):
        _core.read_plain_pickle(data, parts - 1)


_PIECES = [
    *(bytes([code]) for code in b"(]ae}sut).NhqKMjrJGX0" + bytes(range(0x80, 0x96))),
    *(b"K\x01", b"h\x00", b"h\x01", b"q\x00", b"\x8c\x01a", b"M\xff\xff", b"J\0\0\0\x80"),
    *(b"\x8a\x03\x01\x02\xff", b"X\x01\0\0\0b", b"G" + b"\x40" * 8, b"\x80\x04"),
    *(b"](", b"}(", b"K\x01e", b"\x8c\x01ku", b"j\x01\0\0\0", b"r\x02\0\0\0"),
]


@given(st.lists(st.sampled_from(_PIECES), max_size=40).map(b"".join))
@settings(max_examples=400)
def test_random_instructions_are_read_as_pickle_reads_them(data: bytes) -> None:
    data += b"."
    try:
        found = read_pickle(data)
    except TraceError as error:
        assert "\n" not in str(error)  # noqa: PT017 (either is right)
    else:
        assert repr(found) == repr(pickle.loads(data))


@given(plain, st.integers(2, 4), st.data())
def test_a_changed_pickle_is_read_as_pickle_reads_it(value: Any, protocol: int, data: Any) -> None:
    pickled = bytearray(pickle.dumps(value, protocol))
    index = data.draw(st.integers(0, len(pickled) - 1))
    pickled[index] = data.draw(st.integers(0, 255))
    try:
        found = read_pickle(bytes(pickled))
    except TraceError as error:
        assert "\n" not in str(error)  # noqa: PT017 (either is right)
    else:
        assert repr(found) == repr(pickle.loads(bytes(pickled)))
