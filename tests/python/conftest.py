"""Settings of every test, and the recorded traces as fixtures."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import gmlake
from developer import HAS_LAB
from places import RECORDED, RECORDINGS, SHIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOT_RECORDED: Any = pytest.param(None, marks=pytest.mark.recordings)

settings.register_profile("default", deadline=None, max_examples=60)
settings.register_profile(
    "thorough", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("GMLAKE_TEST_PROFILE", "default"))


def pytest_configure() -> None:
    """Let no test of developer builds be skipped where all of them are wanted."""
    if os.environ.get("GMLAKE_REQUIRE_LAB") == "1" and not HAS_LAB:
        raise pytest.UsageError("this gmlake is no developer build: make .venv/.package")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave alone what needs recordings that nobody has named."""
    if RECORDINGS.is_dir():
        return
    without = [item for item in items if not item.get_closest_marker("recordings")]
    config.hook.pytest_deselected(
        items=[item for item in items if item.get_closest_marker("recordings")]
    )
    items[:] = without


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables look the same wherever the tests run."""
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Let programs heed SIGINT, also where the tests run in a background that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=RECORDED or [NOT_RECORDED], ids=lambda path: path.stem if path else "none")
def recorded_trace(request: pytest.FixtureRequest) -> Path:
    """Each snapshot recorded by PyTorch; they are not part of the repository."""
    path: Path = request.param
    return path


@pytest.fixture(params=SHIPPED, ids=lambda path: path.stem)
def shipped_trace(request: pytest.FixtureRequest) -> gmlake.Trace:
    """Each trace of examples/traces."""
    return gmlake.load_trace(request.param)


@pytest.fixture(params=gmlake.policies())
def policy(request: pytest.FixtureRequest) -> str:
    """Each policy by name."""
    name: str = request.param
    return name
