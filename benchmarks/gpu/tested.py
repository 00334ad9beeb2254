"""Run the tests that need a GPU, and keep what came of each.

PYTHONPATH=benchmarks python -m gpu.tested [--write]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import pytest

import machine


class Outcomes:
    """A plug-in of pytest that notes how each test ended."""

    def __init__(self) -> None:
        """Begin with none."""
        self.tests: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test; one that fails or is skipped while it is set up is called no second time."""
        if report.when == "call" or not report.passed:
            self.tests[report.nodeid] = report.outcome


def main() -> int:
    """Run them; return pytest's exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_tests.json")
    options = parser.parse_args()
    outcomes = Outcomes()
    tests = str(machine.ROOT / "tests" / "python" / "gpu" / "test_gpu.py")
    status = pytest.main(["-m", "gpu", "--durations=5", tests], plugins=[outcomes])
    if options.write:
        figures = {"counts": Counter(outcomes.tests.values()), "tests": outcomes.tests}
        print(machine.write("gpu_tests", figures, gpu="; ".join(machine.gpu_and_driver())))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
