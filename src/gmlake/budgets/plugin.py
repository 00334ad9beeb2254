"""The plugin for pytest: marks, options, and what is shown at the end.

It loads next to nothing: what measures is loaded for a run that has marked tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

NAME: Final = "gmlake-budgets"

MARKS: Final = {
    "limit_gpu_memory": "limit_gpu_memory(limit, *, device='h100-80gb', allocator='', ranks=1): "
    "fail the test if its tensors, or what the allocator reserves, need more, as '6 GiB'",
    "limit_gpu_leaks": "limit_gpu_leaks(limit): fail the test if it leaves more behind",
}
"""How the marks are written, and what they do, as `pytest --markers` shows it."""

_OPTIONS: Final = {
    "": "show a table of the marked tests: their GPU memory, and the lines that hold most",
    "-all": "the same for all tests, which all run on the GPU, or on its stand-in",
    "-baseline": "fail a test that needs more than this file says, and name the lines",
    "-update": "write what the tests need now to the file of the baseline",
    "-table": "write that table to this file, for a comment in Markdown",
    "-required": "fail marked tests, instead of skipping them, where nothing can measure them",
}
"""What follows `--gpu-memory`."""


class Options:
    """The marks and options."""

    @staticmethod
    def pytest_addoption(parser: pytest.Parser) -> None:
        group = parser.getgroup("gpu memory", "budgets of GPU memory, without a GPU, too (gmlake)")
        for name, text in _OPTIONS.items():
            is_file = name in ("-baseline", "-table")
            how = {"metavar": "FILE"} if is_file else {"action": "store_true"}
            group.addoption(f"--gpu-memory{name}", help=text, **how)

    @staticmethod
    def pytest_configure(config: pytest.Config) -> None:
        for text in MARKS.values():
            config.addinivalue_line("markers", text)
        chosen = config.option
        if chosen.gpu_memory_update and not chosen.gpu_memory_baseline:
            raise pytest.UsageError("--gpu-memory-update needs --gpu-memory-baseline=FILE")
        config.pluginmanager.register(Budgets(config), NAME)


OPTIONS: Final = Options()


class Budgets:
    """Has marked tests measured, keeps what they needed, and shows it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: dict[str, Any] = {}
        self._shown: list[str] = []
        chosen = config.option.gpu_memory_baseline
        self._baseline = Path(config.invocation_params.dir, chosen) if chosen else None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        chosen = self._config.option
        marked = [item for item in session.items if any(map(item.get_closest_marker, MARKS))]
        marked = session.items if chosen.gpu_memory_all else marked
        if marked and not chosen.collectonly:
            from gmlake.budgets.running import Running

            self._config.pluginmanager.register(Running(self._config, marked, self._baseline))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "gmlake"):
            self._found[report.nodeid] = report.gmlake

    def pytest_sessionfinish(self) -> None:
        is_worker = hasattr(self._config, "workerinput")  # of xdist, whose controller concludes
        if not is_worker and (self._found or self._baseline is not None):
            from gmlake.budgets import baselines

            self._shown = baselines.conclude(self._config.option, self._baseline, self._found)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._shown:
            terminalreporter.section("GPU memory")
            terminalreporter.write_line("\n".join(self._shown))
