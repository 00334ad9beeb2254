"""Where a marked test runs: here on a GPU, else in a process with the stand-in, else nowhere."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from gmlake.budgets.wishes import Wish, wish_of
from gmlake.standin import control, launcher
from gmlake.standin.devices import DEFAULT, device_of

_SLACK_ON_GPU: Final = 0.01  # of a baseline: figures of a GPU wander


class Running:
    """A plugin of pytest that runs these tests, which are marked, or all there are."""

    def __init__(
        self, config: pytest.Config, items: Sequence[pytest.Item], baseline: Path | None
    ) -> None:
        self._config, options = config, config.option
        self._wishes = {item.nodeid: wish_of(item, is_all=True) for item in items}
        known = baseline is not None and not options.gpu_memory_update
        self._orders: dict[str, Any] = {
            "baseline": str(baseline) if known else None,
            "is_all": options.gpu_memory_all,
            "files": sorted({str(item.path) for item in items}),
        }
        self._children: dict[int, Child] = {}  # by the number of devices

    @cached_property
    def _has_gpu(self) -> bool:
        if find_spec("torch") is None:
            return False
        import torch

        return bool(torch.cuda.is_available()) and not control.is_active()

    @cached_property
    def _missing(self) -> str:
        """Why the stand-in cannot run here, in a line; "" if it can."""
        try:
            launcher.check_pytorch()
            launcher.find_library()
        except launcher.StandinMissingError as error:
            return f"GPU memory cannot be measured: {error}"
        return ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a marked test and report it; all its fixtures are made for it alone."""
        wish = self._wishes.get(item.nodeid)
        is_here = isinstance(wish, Wish) and wish.ranks == 1 and self._has_gpu
        if wish and not is_here and self._missing and not self._config.option.gpu_memory_required:
            item.add_marker(pytest.mark.skip(reason=self._missing))
            wish = None
        if wish is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        if is_here:
            if not self._config.pluginmanager.is_registered(self._measuring):
                self._config.pluginmanager.register(self._measuring)
            runtestprotocol(item, nextitem=None)
        else:
            for report in self._reports(item, wish, nextitem):
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_sessionfinish(self) -> None:
        for child in self._children.values():
            child.close()

    @cached_property
    def _measuring(self) -> object:
        """What measures in this process."""
        from gmlake.budgets.measuring import Measuring

        return Measuring(self._config, self._orders, _SLACK_ON_GPU)

    def _reports(
        self, item: pytest.Item, wish: Wish | str, nextitem: pytest.Item | None
    ) -> Iterator[pytest.TestReport]:
        """Yield what became of a test in the process with the stand-in."""
        read = self._config.hook.pytest_report_from_serializable
        words: dict[str, Any] = dict.fromkeys(item.keywords, 1)
        made = partial(pytest.TestReport, item.nodeid, item.location, words)
        found = self._run(item.nodeid, wish)
        for data in found.get("reports", ()):
            report = read(config=self._config, data=data)
            report.nodeid = item.nodeid
            yield report
        if "why" in found:
            yield made(outcome="failed", longrepr=found["why"], when="call")
        try:  # fixtures that an earlier test had made in this process, and kept for this one
            item.session._setupstate.teardown_exact(nextitem)  # noqa: SLF001 (nothing else does)
        except Exception as error:  # noqa: BLE001 (of any fixture)
            yield made(outcome="failed", longrepr=f"{error!r}", when="teardown")

    def _run(self, name: str, wish: Wish | str) -> dict[str, Any]:
        """Return the reports of a test, or why it failed or was skipped."""
        if isinstance(wish, str):
            return {"why": wish}
        if self._missing:
            return {"why": self._missing}
        devices = min(wish.ranks, launcher.MOST_DEVICES)
        if devices not in self._children:
            self._children[devices] = Child(self._config, devices, self._orders)
        return self._children[devices].run(name, wish.ranks, wish.device)


class Child:
    """A pytest on a stand-in for so many devices; see server.py for the orders."""

    def __init__(self, config: pytest.Config, devices: int, orders: Mapping[str, Any]) -> None:
        settings = device_of(DEFAULT).settings() | {"devices": str(devices)}
        variables = launcher.environment(settings)
        variables.pop("CUDA_VISIBLE_DEVICES", None)  # it numbers the devices of the machine
        variables.setdefault("PYTHONHASHSEED", "0")  # what a set holds comes in the same order
        variables["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else is_available() rules out a fork
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with this)
        output = None if config.getoption("capture") == "no" else self._log
        self._link, its = Pipe()
        self._process = subprocess.Popen(  # noqa: S603 (our own)
            [sys.executable, "-m", "gmlake.budgets.server", str(its.fileno())],
            env=variables,
            cwd=config.invocation_params.dir,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[its.fileno()],
        )
        its.close()
        more = ["--no-cov"] if config.pluginmanager.hasplugin("pytest_cov") else []
        chosen = config.getoption("basetemp")  # which pytest empties
        ours = {
            "path": sys.path,
            "arguments": [*map(str, config.invocation_params.args), *more],
            "basetemp": f"{Path(chosen).absolute()}-standin-{devices}" if chosen else None,
        }
        self._link.send({**ours, **orders})

    def run(self, *what: str | int) -> dict[str, Any]:
        """Run a test: its name, ranks, device; return what became of it."""
        try:
            self._link.send(what)
            return dict(self._link.recv())
        except (EOFError, OSError):
            self._process.wait()
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").splitlines()[-20:]
            return {"why": "\n".join(["the process with the stand-in GPU ended", *said])}

    def close(self) -> None:
        """End it: it has nothing left to do."""
        self._process.kill()
        self._process.wait()
        self._link.close()
        self._log.close()
