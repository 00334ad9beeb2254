"""Settings of every test, and the recorded traces as fixtures."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import gmlake
from developer import HAS_LAB
from places import RECORDINGS, SHIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gmlake.trace import Trace

settings.register_profile("default", deadline=None, max_examples=60)
settings.register_profile(
    "thorough", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("GMLAKE_TEST_PROFILE", "default"))


HAS_TORCH = os.environ.get("GMLAKE_TEST_TORCH") != "0" and find_spec("torch") is not None
OF_TORCH = re.compile(r"^pytestmark = .*\bmark\.torch\b", re.MULTILINE)
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Let no test be left out where all of them are wanted."""
    if os.environ.get("GMLAKE_REQUIRE_LAB") == "1" and not HAS_LAB:
        raise pytest.UsageError("this gmlake is no developer build: make .venv/.package")
    if os.environ.get("GMLAKE_REQUIRE_TORCH") == "1" and not HAS_TORCH:
        raise pytest.UsageError("there is no PyTorch here: make standin")
    config.stash[LEFT_OUT] = Counter()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave alone files that import PyTorch where it is not."""
    is_test = collection_path.match("test_*.py")
    if HAS_TORCH or not is_test or not OF_TORCH.search(collection_path.read_text(encoding="utf-8")):
        return None
    config.stash[LEFT_OUT]["files"] += 1
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave alone what needs recordings that nobody has named, or PyTorch where it is not."""
    for marker, is_there in {"recordings": RECORDINGS.is_dir(), "torch": HAS_TORCH}.items():
        if not is_there:
            needing = [item for item in items if item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=needing)
            items[:] = [item for item in items if not item.get_closest_marker(marker)]
            config.stash[LEFT_OUT][marker] = len(needing)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say in a line what has been left out for want of PyTorch."""
    files, tests = (config.stash[LEFT_OUT][name] for name in ("files", "torch"))
    if files or tests:
        terminalreporter.write_line(
            f"left out, they need PyTorch: {files} files of tests and {tests} tests more; "
            "`make test-torch` runs them"
        )


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


@pytest.fixture(scope="module")
def _few_objects() -> Iterator[None]:
    """Hide what is there already from `diagnose()`, which asks the collector for every object."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(params=SHIPPED, ids=lambda path: path.stem)
def shipped_trace(request: pytest.FixtureRequest) -> Trace:
    """Each trace of examples/traces."""
    return gmlake.load(request.param).devices[0].trace


@pytest.fixture(params=gmlake.policies())
def policy(request: pytest.FixtureRequest) -> str:
    """Each policy by name."""
    name: str = request.param
    return name
