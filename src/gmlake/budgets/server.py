"""The process in which marked tests run where no GPU is: pytest once more, on the stand-in.

It collects the files with marked tests, then forks for each test that it is asked for, so a test
finds neither memory nor fixtures of another, in whatever order they come. Each of several ranks is
a fork, too. It is told what to do, and then one test after the other, through the connection whose
number it was started with, and answers there what became of them.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import pytest
import torch

from gmlake.budgets.measuring import Measuring
from gmlake.budgets.plugin import NAME
from gmlake.pytorch import compat
from gmlake.standin import answers, control, launcher, ranks
from gmlake.standin.devices import DEFAULT, device_of

_OPTIONS: Final[dict[str, object]] = {
    **dict.fromkeys(("numprocesses", "maxprocesses", "xmlpath")),
    **dict.fromkeys(("looponfail", "usepdb", "stepwise", "stepwise_skip", "memray"), False),
    **dict.fromkeys(("lf", "failedfirst", "newfirst", "maxfail"), 0),
    "dist": "no",
    "tx": [],
}
"""Options, also of other plugins, that are for the process that reports."""

_THREADS: Final = torch.get_num_threads()

_STARTED: Final = "CUDA has started while tests were collected: device= and ranks= cannot be had"


class Server:
    """A plugin of pytest that takes the place of its loop over all tests."""

    def __init__(self, link: Connection, orders: dict[str, Any]) -> None:
        self._link, self._orders = link, orders
        self._files = {Path(name) for name in orders["files"]}
        self._errors: dict[str, str] = {}
        self._reports: list[dict[str, Any]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Iterator[None]:
        for name, value in (_OPTIONS | {"basetemp": self._orders["basetemp"]}).items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        for name in ("terminalreporter", NAME):  # they are the business of the other process
            config.pluginmanager.set_blocked(name)
        self._config, self._measuring = config, Measuring(config, self._orders)
        config.pluginmanager.register(self._measuring)
        return (yield)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path.is_file() and collection_path not in self._files else None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._errors[report.nodeid] = report.longreprtext

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        serialized = self._config.hook.pytest_report_to_serializable
        self._reports.append(serialized(config=self._config, report=report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> NoReturn:
        items = {item.nodeid: item for item in session.items}
        gc.freeze()
        self._is_shared = _rules_out_forks()
        with suppress(EOFError):  # the other process has ended
            while True:
                name, count, device = self._link.recv()
                item = items.get(name) or items.get(name.rpartition("@")[0])  # a group of xdist's
                self._link.send(self._run(item, count, device) if item else self._missing(name))
        os._exit(0)  # what is done at the end of a session is for the process that reports

    def _missing(self, name: str) -> dict[str, Any]:
        texts = [text for node, text in self._errors.items() if name.startswith(node)]
        return {"why": "\n".join(["it was not collected on the stand-in GPU", *texts])}

    def _run(self, item: pytest.Item, count: int, device: str) -> dict[str, Any]:
        """Run a test on all its ranks; return the reports of the worst."""
        if self._is_shared:
            if count > 1 or device != DEFAULT:
                return {"why": _STARTED}
            return {"reports": self._play(item, 0, 1)}
        return max((self._fork(item, rank, count, device) for rank in range(count)), key=_badness)

    def _fork(self, item: pytest.Item, rank: int, count: int, device: str) -> dict[str, Any]:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
            sys.stdout.flush()
            sys.stderr.flush()
            if (pid := os.fork()) == 0:
                self._be_forked(item, file, device, rank, count)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            file.seek(0)
            if text := file.read():
                return dict(json.loads(text))
        how = f"exit code {code}" if code >= 0 else launcher.name_of_signal(-code)
        return {"why": f"the process of the test ended with {how}"}

    def _be_forked(self, item: pytest.Item, file: IO[str], on: str, *place: int) -> NoReturn:
        try:
            if on != DEFAULT:  # which the stand-in has from its start
                os.environ.update(launcher.variables_of(device_of(on).settings()))
                control.read_settings()
            torch.set_num_threads(_THREADS)
            text = json.dumps({"reports": self._play(item, *place)}, default=str)
        except BaseException:  # noqa: BLE001 (as pytest.exit() raises)
            text = json.dumps({"why": traceback.format_exc()})
        file.write(text)
        for each in (file, sys.stdout, sys.stderr):
            each.flush()
        os._exit(0)

    def _play(self, item: pytest.Item, rank: int, count: int) -> list[dict[str, Any]]:
        self._reports = []
        if count > 1:
            devices = torch.cuda.device_count()
            os.environ.update(launcher.variables_of_rank(rank, count, devices))
            ranks.install()
        self._measuring.place = rank, count
        self._config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return self._reports


def _rules_out_forks() -> bool:
    """Whether PyTorch refuses CUDA in forks of this process, as once it was started or asked."""
    if (pid := os.fork()) == 0:
        os._exit(compat.is_in_bad_fork())
    return os.waitpid(pid, 0)[1] != 0


def _badness(found: dict[str, Any]) -> tuple[bool, bool, int]:
    """Return by what the worst rank is found: it crashed, it failed, it needed most."""
    reports = found.get("reports", [])
    peak = max((one.get("gmlake", {}).get("peak_bytes", 0) for one in reports), default=0)
    return "why" in found, any(one["outcome"] == "failed" for one in reports), peak


def main() -> None:
    """Serve until the connection ends."""
    link = Connection(int(sys.argv[1]))
    orders = link.recv()
    sys.path[:] = orders["path"]
    torch.set_num_threads(1)  # threads of a pool would not be there in a fork
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # the first one imports for seconds
    answers.install()
    pytest.main(orders["arguments"], [Server(link, orders)])


if __name__ == "__main__":
    main()
