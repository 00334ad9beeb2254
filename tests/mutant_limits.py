"""A plugin of pytest: a test that takes more than GMLAKE_MUTANT_SECONDS of CPU time ends all."""

from __future__ import annotations

import os
import signal

SECONDS = float(os.environ.get("GMLAKE_MUTANT_SECONDS", "0"))  # 0: as long as it takes


def pytest_runtest_setup() -> None:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)


def pytest_unconfigure() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
