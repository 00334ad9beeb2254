"""What every test on the stand-in shares: it runs there, breaks no rule, and leaves no memory."""

from __future__ import annotations

import gc
import operator
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from gmlake import _core
from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEEDED = (
    "this process does not run on the stand-in GPU: build it with `make standin`, then run "
    "`.venv-standin/bin/python -m tests.standin -m pytest tests/standin`"
)


class _Elsewhere(pytest.Module):
    """A file of tests in a process that cannot run them, not even import PyTorch perhaps."""

    def collect(self) -> list[pytest.Item]:
        if os.environ.get("GMLAKE_REQUIRE_STANDIN") == "1":
            raise self.CollectError(NEEDED)
        pytest.skip(NEEDED, allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Replace the files of this folder where they cannot run."""
    if control.is_active():
        return None
    found: pytest.Module = _Elsewhere.from_parent(parent, path=module_path)
    return found


def _demand_the_check() -> None:
    """Refuse to run without the check of the order that the environment asks for."""
    choose: Any = getattr(_core, "test_hooks", None)
    is_wanted = os.environ.get("GMLAKE_TEST_CHECK_ORDER") == "1"
    if is_wanted and not (choose and choose(check_order=True)["check_order"]):
        raise pytest.UsageError("gmlake checks no order of streams here: `make standin`")


def pytest_configure(config: pytest.Config) -> None:
    """Let whichever test runs the first backward pass of a process have PyTorch's warning."""
    if control.is_active():
        _demand_the_check()
    config.addinivalue_line(
        "filterwarnings", "ignore:Attempting to run cuBLAS, but there was no current CUDA context"
    )


def pytest_collection_finish() -> None:
    """Spare the collections of garbage after each test what the imports left."""
    gc.freeze()


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Let programs heed SIGINT, also where the tests run in a background that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves memory behind, or breaks a rule of CUDA; the latter is on stderr.

    Faults are planted in programs of their own, for the exit code of this process tells of any.
    """
    from tests.standin.accounting import give_back, held_bytes, live_bytes, reserved_bytes

    failed, held, misuses = request.session.testsfailed, held_bytes(), control.misuses()
    live = live_bytes()
    yield
    control.set_pace("lag")
    if request.session.testsfailed == failed:  # what failed is kept alive by its traceback
        give_back()
        left = held_bytes()
        if left != held or live_bytes() != live:  # a collection takes longer than most tests
            left = reserved_bytes()
        assert all(map(operator.le, left, held)), f"reserved bytes: {left}, before: {held}"
    assert control.misuses() == misuses, "rules of CUDA were broken, see standard error"
