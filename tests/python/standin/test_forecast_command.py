"""`gmlake forecast` where it cannot run: what is missing is said in one line; and its page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gmlake.commands import main
from gmlake.standin import forecast_command, launcher, sureness
from gmlake.standin.batches import next_batch
from gmlake.standin.beyond import Beyond, beyond
from gmlake.standin.devices import DEVICES, device_of
from gmlake.standin.forecasts import Forecast, PolicyNeed
from gmlake.standin.runs import Runner
from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1 << 20


def torch_in(folder: Path, version: str, *, cuda: str | None, has_library: bool) -> Path:
    """Make a PyTorch that no program could use, in a folder for packages."""
    package = folder / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('PyTorch was imported')")
    (package / "version.py").write_text(
        f"__all__ = ['__version__']\n__version__ = {version!r}\ndebug = False\n"
        f"cuda: Optional[str] = {cuda!r}\ngit_version = 'abc'\nhip: Optional[str] = None\n"
    )
    if has_library:
        (package / "lib" / "libtorch_cuda.so").touch()
    return folder


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Have this Python find no PyTorch but the one to be made."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    def make(version: str, *, cuda: str | None, has_library: bool) -> Path:
        return torch_in(tmp_path, version, cuda=cuda, has_library=has_library)

    return make


@pytest.mark.parametrize("cuda", ["13.0", "13.2"])
def test_a_build_for_the_stand_ins_cuda_suits(cuda: str, only: Callable[..., Path]) -> None:
    only("2.14.1+cu132", cuda=cuda, has_library=True)
    assert launcher.check_pytorch() == "2.14.1+cu132"


def test_the_command_says_so_in_one_line_and_imports_no_pytorch(tmp_path: Path) -> None:
    packages = torch_in(tmp_path / "packages", "2.13.0+cpu", cuda=None, has_library=False)
    script = tmp_path / "train.py"
    script.write_text("print('began')")
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "gmlake", "forecast", str(script)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gmlake: PyTorch 2.13.0+cpu is a build without CUDA")
    assert done.stderr.count("\n") == 1


# ---- figures


def test_cuda_takes_a_context_kernels_and_the_libraries_that_are_opened() -> None:
    plain = beyond({"cudaMalloc": 9}, world=1, is_checked=True)
    assert plain == Beyond(527 * MIB, 94 * MIB, 0, 0, 32 * MIB)
    calls = {"cublasCreate_v2": 3, "cudnnCreate": 1, "cusolverDnCreate": 0, "cufftCreate": 2}
    many = beyond(calls, world=2, is_checked=False)
    assert many.libraries_bytes == (146 + 2 + 8) * MIB
    assert many.communication_bytes == 850 * MIB
    assert many.error_bytes == (300 + 600) * MIB
    assert many.total_bytes == (527 + 94 + 146 + 2 + 8 + 850) * MIB


# ---- which batch to run next


@pytest.mark.parametrize(
    ("needs", "room", "batch"),
    [
        ({4: 40, 8: 80}, 125, 12),  # on the line
        ({4: 40, 8: 80}, 85, None),  # one more is too much by the line
        ({4: 40, 8: 80, 12: 130}, 125, 11),  # between one that fits and one that does not
        ({4: 40, 8: 80, 11: 126, 12: 130}, 125, 10),
        ({4: 40, 8: 80, 10: 100, 11: 126}, 125, None),
        ({8: 80, 16: 160}, 45, 4),  # none was small enough
        ({8: 80, 16: 160}, 5, 1),
        ({1: 50, 8: 80, 16: 160}, 45, None),
        ({8: 80, 16: 80}, 100, 32),  # no line to be seen
        ({8: 120, 16: 110}, 100, 1),
        ({8: 80, 16: 80, 32: 80}, 100, None),  # the data end
        ({8: 80, 16: 81}, 10**9, 16 * 16),  # a line that says little
    ],
)
def test_the_next_batch_is_where_the_line_of_the_nearest_two_ends(
    needs: dict[int, int], room: int, batch: int | None
) -> None:
    assert next_batch(needs, room) == batch


def test_each_miss_goes_further_than_the_one_before() -> None:
    needs = {10: 100, 1000: 11_000}
    tries = [next_batch(needs, 10_000, missed) for missed in range(4)]
    assert tries == [909, 909, 833, 715]


@pytest.mark.parametrize("room", [5, 45, 100, 333, 12345, 10**6])
def test_the_search_ends_at_the_largest_that_fits(room: int) -> None:
    """Where need bends, and grows in steps of several batches, as with segments."""

    def need(batch: int) -> int:
        return 10 * batch + batch * batch // 500 + 35 * (batch // 7)

    needs = {8: need(8), 16: need(16)}
    missed = 0
    for _ in range(25):
        batch = next_batch(needs, room, missed)
        if batch is None:
            break
        assert batch not in needs
        needs[batch] = need(batch)
        missed = missed + 1 if needs[batch] > room else 0
    assert batch is None
    low = max((batch for batch, need in needs.items() if need <= room), default=0)
    assert low == max(each for each in range(50_000) if need(each) <= room)


# ---- how sure


def test_the_errors_are_those_that_were_measured() -> None:
    """In 1/1000 of what was foreseen, of the programs that had more in use."""
    path = ROOT / "benchmarks" / "results" / "forecast_errors.json"
    programs = json.loads(path.read_text(encoding="utf-8"))["programs"].values()
    assert len(programs) == sureness.MEASURED
    for policy, name in (
        ("caching", "default"),
        ("expandable", "expandable"),
        ("stitch", "gmlake"),
    ):
        figures = [program[name]["in_use"] for program in programs]
        more = [1000 * (of["measured_bytes"] / of["foreseen_bytes"] - 1) for of in figures]
        assert sorted(round(each, 1) for each in more if each >= 0.05) == list(
            sureness.ERRORS[policy]
        )


@pytest.mark.parametrize(("memory", "share"), [(2000, 26), (1020, 25), (1010, 23), (900, 18)])
def test_what_is_sure_is_what_would_have_fit(memory: int, share: int) -> None:
    assert sureness.share_that_fits("caching", 1000, memory) == share / 27


KNOWN: dict[str, Any] = {"answers": [], "live_bytes": [], "asked_bytes": [], "steps": 8}


@pytest.mark.parametrize(
    ("sizes", "room", "is_open"),
    [
        ([100, 101, 102, 103], 99, True),  # each more than the one before
        ([100, 150, 120, 110], 1.9, True),
        ([100, 150, 120, 110], 2.1, False),
        ([1000, 1005, 1001, 1002], 1.1, False),
    ],
)
def test_steps_that_differ_fit_where_there_is_plenty(
    sizes: list[int], room: float, *, is_open: bool
) -> None:
    known = KNOWN | {"why": "steps differ", "asked_bytes": sizes}
    assert bool(list(sureness.open_questions(known, room))) is is_open


@pytest.mark.parametrize(("fits", "code"), [(True, 0), (False, 1), (None, 3)])
def test_the_exit_code_says_whether_it_is_known(
    answered: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    fits: bool | None,
    code: int,
) -> None:
    (tmp_path / "s.py").touch()
    found = answered["answer"]
    found = replace(found, needs=(replace(found.needs[0], fits=fits),))
    monkeypatch.setattr(forecast_command, "forecast", lambda *_, **__: found)
    assert main(["forecast", str(tmp_path / "s.py")]) == code
    assert found.to_dict()["fits"] is fits


def test_a_notebook_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="jupyter nbconvert --to script"):
        Runner(["note.ipynb"], DEVICES["l4"], 8, 1, 0, is_shown=False)


def test_a_device_has_the_memory_that_is_said_beside_its_name() -> None:
    named, seen = DEVICES["rtx-4090"], device_of("RTX_4090:24563MiB")
    assert seen.memory_bytes == 24563 * MIB
    assert (seen.capability, seen.multiprocessors) == (named.capability, named.multiprocessors)
    assert seen.label == named.label  # vLLM's tuned kernels are found by it
    assert device_of("24563MiB").capability == DEVICES["h100-80gb"].capability
    for name, why in (
        ("abacus:1GiB", "no device is called"),
        ("l4:", "no device is called"),
        ("l4:1MiB", "are possible"),
    ):
        with pytest.raises(ValueError, match=why):
            device_of(name)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have the command get this answer, and keep what it asked for."""
    asked: dict[str, Any] = {}
    need = PolicyNeed("caching", 3 * MIB, 2 * MIB, 700 * MIB, fits=True)
    extra = beyond({}, world=1, is_checked=True)
    found = Forecast(
        *("train.py", DEVICES["l4"], "2.11.0", 5, "steps repeat", MIB),
        beyond=extra,
        needs=(need,),
    )

    def forecast(program: list[str], device: str, **options: Any) -> Forecast:
        asked.update(options, program=program, device=device)
        return found

    asked["answer"] = found

    monkeypatch.setattr(forecast_command, "forecast", forecast)
    return asked


def test_options_before_the_script_are_ours_and_those_after_it_its_own(
    answered: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    ours = ["--on", "l4", "--steps", "3", "--ranks", "4", "--rank", "1", "--batch", "B=2"]
    assert main(["forecast", *ours, str(script), "--steps", "9", "--json", "-m", "x"]) == 0
    assert answered["program"] == [str(script), "--steps", "9", "--json", "-m", "x"]
    assert (answered["device"], answered["steps"], answered["batch"]) == ("l4", 3, "B=2")
    assert (answered["ranks"], answered["rank"], answered["is_shown"]) == (4, 1, False)
    assert capsys.readouterr().out.startswith("peak 1.00 MiB live; needs 700 MiB with PyTorch's")
    assert main(["forecast", "-m", "package.train", "--lr", "1"]) == 0
    assert answered["program"] == ["-m", "package.train", "--lr", "1"]


def test_a_batch_may_begin_with_dashes(answered: dict[str, Any], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    for words in (["--batch", "--batch-size=4,8"], ["--batch=--batch-size=4,8"]):
        assert main(["forecast", *words, str(script), "--batch-size=2"]) == 0
        assert answered["batch"] == "--batch-size=4,8"
        assert answered["program"] == [str(script), "--batch-size=2"]
    assert main(["forecast", "--batch", "-b=4", "--timeout", "60", str(script)]) == 0
    assert (answered["batch"], answered["timeout"]) == ("-b=4", 60)


def test_the_page_and_the_recording_are_written(answered: dict[str, Any], tmp_path: Path) -> None:
    script, page, recording = tmp_path / "s.py", tmp_path / "page.html", tmp_path / "run.pickle"
    script.touch()
    words = ["-o", str(page), "--record", str(recording), str(script)]
    assert main(["forecast", *words]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert recording.stat().st_size > 0
    assert answered["program"] == [str(script)]
