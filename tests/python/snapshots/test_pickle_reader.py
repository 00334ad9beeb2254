"""The unpickler: equal to pickle on plain data, and harmless on everything else."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gmlake import TraceError
from gmlake.snapshots.opening import read_pickle

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
