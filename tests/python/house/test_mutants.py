"""The changes whose notice tests/matrix looks for: of code, and of no text."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from places import ROOT


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests" / "mutants.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutants", module)
    spec.loader.exec_module(module)
    return module


def test_code_is_changed_and_texts_are_not(mutants: Any) -> None:
    source = 'def f(x):\n    """Is a < b?"""\n    print("1 < 2 and 3")  # x < 1\n    return x < 9\n'
    found = {(one.number, one.after.strip()) for one in mutants.mutants_of("a.py", source)}
    assert found == {(2, "pass"), (3, "return x <= 9")}
    source = (
        '/* a < b;\n   c < d */\nint\nf(void)\n{\n    say("a < b");\n    return a < b; /* < */\n}\n'
    )
    found = {(one.number, one.after.strip()) for one in mutants.mutants_of("a.c", source)}
    assert found == {(5, ""), (6, "return a <= b; /* < */")}


def test_every_room_has_files_and_a_seed_is_an_order(mutants: Any) -> None:
    for room in mutants.ROOMS:
        assert len(mutants.in_order([room], 1)) > 100
    assert mutants.in_order(["csrc/core"], 7) == mutants.in_order(["csrc/core"], 7)
    assert mutants.files_of(["csrc/lake/sl*.c", "src/gmlake/units.py"])[0] == "csrc/lake/sleep.c"
    with pytest.raises(ValueError, match="csrc/nowhere has no file"):
        mutants.files_of(["csrc/nowhere"])


def test_changes_by_hand_change_code_that_is_there(mutants: Any) -> None:
    found = mutants.by_hand()
    assert len(found) >= 40
    assert all(one.before != one.after for one in found)
