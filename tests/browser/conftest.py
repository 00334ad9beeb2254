"""The browser of these tests, and what becomes of them where there is none."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browsing import Browser

IS_REQUIRED = os.environ.get("GMLAKE_REQUIRE_BROWSER") == "1"
_MODULES = ("selenium",)
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_NO_BROWSER = (
    "Chromium or its chromedriver is not here; on Debian: apt-get install chromium chromium-driver"
)


class _Elsewhere(pytest.Module):
    """A file of tests whose imports are missing."""

    def collect(self) -> list[pytest.Item]:
        reason = f"{', '.join(_missing())} not installed: pip install 'gmlake[test]'"
        if IS_REQUIRED:
            raise self.CollectError(reason)
        pytest.skip(reason, allow_module_level=True)


def _missing() -> list[str]:
    return [name for name in _MODULES if not find_spec(name)]


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Replace the files of this folder where they cannot be imported."""
    if not _missing():
        return None
    found: pytest.Module = _Elsewhere.from_parent(parent, path=module_path)
    return found


def _give_up(reason: str) -> NoReturn:
    """Skip what a user may leave out, but not where everything must run."""
    if IS_REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        _give_up(_NO_BROWSER)
    from browsing import Browser

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SE_OFFLINE", "true")  # selenium fetches neither a browser nor a driver
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            environment.setenv(name, str(tmp_path_factory.mktemp("chromium")))
        browser = Browser(program, driver)
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.emulate()
    yield chromium
    chromium.emulate()
