"""What gmlake.enabled() takes from its arguments and from the environment, without a device."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.pytorch import notices
from gmlake.pytorch.session_settings import Given, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLES = (
    *("GMLAKE_POLICY", "GMLAKE_MODE", "GMLAKE_CAPACITY", "GMLAKE_SET", "GMLAKE_HANDLE_TYPES"),
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    assert Settings.of() == Settings("stitch", 0, "", {})


def test_variables_speak_where_arguments_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMLAKE_POLICY", " caching ")
    monkeypatch.setenv("GMLAKE_CAPACITY", "20GiB")
    monkeypatch.setenv("GMLAKE_SET", "growth=64MiB, max_views=100")
    monkeypatch.setenv("GMLAKE_HANDLE_TYPES", "fabric")
    found = Settings.of()
    assert found.policy == "caching"
    assert (found.capacity_bytes, found.handle_type) == (20 << 30, "fabric")
    assert found.knobs == {"growth": 64 << 20, "max_views": 100}
    given = Given("stitch", "1GiB", "posix_fd", {"growth": "1GiB"})
    found = Settings.of(given)
    assert found.policy == "stitch"
    assert (found.capacity_bytes, found.handle_type) == (1 << 30, "posix_fd")
    assert found.knobs == {"growth": 1 << 30, "max_views": 100}


def test_knobs_of_sharing_are_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMLAKE_SET", "borrow_waits=0,growth=2KiB")
    session = gmlake.enabled(reuse_allow_internal_dependencies=0, reuse_allow_opportunistic=0)
    assert session.settings.knobs == {
        "borrow_waits": 0,
        "growth": 2 << 10,
        "reuse_allow_internal_dependencies": 0,
        "reuse_allow_opportunistic": 0,
    }
    with pytest.raises(ValueError, match="reuse_allow_opportunistic is 2, but must be between"):
        gmlake.enabled(reuse_allow_opportunistic=2)


def test_cost_model_is_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, word in enumerate(["time", "balanced", "memory"]):
        assert gmlake.enabled(optimize_for=word).settings.knobs == {"optimize_for": number}
        assert gmlake.enabled(optimize_for=number).settings.knobs == {"optimize_for": number}
        monkeypatch.setenv("GMLAKE_SET", f"optimize_for={word.upper()}")
        assert Settings.of().knobs == {"optimize_for": number}
        assert Settings.of(Given(knobs={"optimize_for": "time"})).knobs == {"optimize_for": 0}
    with pytest.raises(ValueError, match=r"^optimize_for is 'fast', but must be time, balanced"):
        gmlake.enabled(optimize_for="fast")
    with pytest.raises(
        ValueError, match=r"^optimize_for is 3, but must be between 0 and 2, for: time"
    ):
        gmlake.enabled(optimize_for=3)


def test_a_difference_is_told_in_words() -> None:
    quick, thrifty = (Settings(knobs={"optimize_for": number}) for number in (0, 2))
    assert quick.difference(thrifty) == "optimize_for is time, not memory"
    assert quick.difference(Settings()) == "optimize_for is time, not unset"
    assert Settings().difference(quick) == "optimize_for is not set, not time"
    small, large = (Settings("stitch", n << 20, knobs={"growth": n << 21}) for n in (1, 3))
    assert small.difference(large) == "capacity is 1MiB, not 3MiB, growth is 2MiB, not 6MiB"


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert Settings.of() == Settings()


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("GMLAKE_POLICY", "best", "no policy is called 'best'; there are: "),
        ("GMLAKE_MODE", "half", "no mode is called 'half'; name none"),
        ("GMLAKE_MODE", "full", "gmlake stands in front of PyTorch's allocator"),
        ("GMLAKE_CAPACITY", "lots", "'lots' is not a size"),
        ("GMLAKE_CAPACITY", "0", "a capacity of 0 bytes cannot serve anything"),
        ("GMLAKE_SET", "growth", "'growth' is not knob=value"),
        ("GMLAKE_SET", "growth=1,", "'' is not knob=value"),
        ("GMLAKE_SET", "grow=1", "no setting is called 'grow'"),
        ("GMLAKE_SET", "growth=big", "growth: 'big' is not a size"),
        ("GMLAKE_SET", "max_views=0", "max_views is 0, but must be between 1 and"),
        ("GMLAKE_SET", "roundup_power2_divisions.3=2", "names no interval"),
        (
            "GMLAKE_SET",
            "optimize_for=fast",
            "optimize_for is 'fast', but must be time, balanced or memory",
        ),
        ("GMLAKE_SET", "optimize_for=3", "optimize_for is 3, but must be between 0 and 2"),
        ("GMLAKE_SET", "optimize_for.1=time", "'time' is not a size"),
        ("GMLAKE_HANDLE_TYPES", "socket", "no handle type is called 'socket'"),
    ],
)
def test_a_bad_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, words: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=f"^{variable}: ") as caught:
        Settings.of()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        Given(policy="best"),
        Given(policy=""),
        Given(capacity=-1),
        Given(handle_types="socket"),
        Given(knobs={"grow": 1}),
        Given(knobs={"max_views": 0}),
        Given(knobs={"optimize_for": "fast"}),
        Given(knobs={"optimize_for": 3}),
    ],
)
def test_a_bad_argument_is_refused(given: Given) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Settings.of(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Given(policy=1), "a policy is a string, not 1"),  # type: ignore[arg-type]
        (Given(handle_types=5), "a handle type is a string, not 5"),  # type: ignore[arg-type]
        (Given(share=True), "a way to share is a string, not True"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_string_is_refused(given: Given, words: str) -> None:
    with pytest.raises(TypeError, match=f"^{words}; there are: "):
        Settings.of(given)


@pytest.mark.parametrize("begin", [gmlake.enabled, gmlake.enable])
def test_naming_the_one_mode_is_deprecated(
    begin: Callable[..., gmlake.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode, words in (("full", 'mode "full" is gone: '), ("half", "no mode is called 'half'")):
        with pytest.raises(ValueError, match=words):
            begin(mode=mode)
    monkeypatch.setattr(notices, "_said", set())
    with pytest.warns(gmlake.GmlakeWarning, match="naming it is deprecated: leave it out"):
        gmlake.enabled(mode="native")


def test_so_is_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_said", set())
    monkeypatch.setenv("GMLAKE_MODE", "native")
    with pytest.warns(gmlake.GmlakeWarning, match="naming it is deprecated: leave it out"):
        assert Settings.of() == Settings()


def test_another_process_is_given_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs: dict[str, int | str] = {
        "growth": "64MiB",
        "roundup_power2_divisions.256": 4,
        "optimize_for": "time",
    }
    settings = Settings.of(Given("caching", "20GiB", "fabric", knobs))
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert os.environ["GMLAKE_SET"].endswith(",optimize_for=time")
    assert Settings.of() == settings
    assert Settings().to_environment() == {"GMLAKE_POLICY": "stitch"}


def test_pytorchs_own_settings_hold_for_its_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTORCH_CUDA_ALLOC_CONF",
        "max_split_size_mb:64, large_segment_size_mb:40,expandable_segments:True,"
        "garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,>:4]",
    )
    knobs = Settings.of(Given(knobs={"large_segment_size": "20MiB"})).knobs
    assert knobs["max_split_size"] == 64 << 20
    assert knobs["large_segment_size"] == 20 << 20
    assert knobs["garbage_collection_percent"] == 80
    divisions = {
        int(name.partition(".")[2]): count
        for name, count in knobs.items()
        if name.startswith("roundup")
    }
    assert divisions == {
        1 << power: 1 if power <= 8 else 2 if power == 9 else 4 for power in range(16)
    }
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "roundup_power2_divisions:8")
    assert Settings.of().knobs == {"roundup_power2_divisions": 8}


@pytest.mark.parametrize(
    "text", ["nonsense", "max_split_size_mb:1", "max_split_size_mb:x", "a:b,[,:", ":,:,["]
)
def test_what_pytorch_would_refuse_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", text)
    assert Settings.of().knobs == {}


PROGRAM = """
import sys, warnings
import gmlake
assert not gmlake.is_enabled()
session = gmlake.enabled()
assert "torch" not in sys.modules
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with session as lake:
        assert lake.mode == "off" and not gmlake.is_enabled(), lake
        assert lake.stats() == {} and lake.trim() == 0 and lake.devices == ()
        with gmlake.enabled(), gmlake.enabled("caching"):
            assert gmlake.enable() is gmlake.enable()
        gmlake.disable()
import torch
assert torch.ones(3).sum() == 3
said = [w for w in caught if w.category is gmlake.GmlakeWarning]
assert len(said) == 1 and said[0].filename == "<string>", said
print(said[0].message, lake)
"""


@pytest.mark.torch
def test_without_cuda_a_session_does_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "gmlake serves nothing in this process" in done.stdout
    assert "<gmlake.Session: policy stitch, not open>" in done.stdout
