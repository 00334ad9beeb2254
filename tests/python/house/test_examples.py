"""The recorder example: what it writes down is what the program does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RECORDER = ROOT / "examples" / "record_without_gpu.py"
ALLOC, FREE, MARK = 1, 2, 8
STEPS = 4

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def recorder() -> Any:
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("record_without_gpu", RECORDER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def record_anew(recorder: Any, **training: Any) -> Any:
    """Return the events of a tiny model on CPU fakes, which every build of PyTorch has."""
    model, batch = recorder.PRESETS["tiny"]
    settings = {"batch": batch, "steps": STEPS, **training}
    requests = recorder.record(model, recorder.Training(**settings), "cpu").requests()
    requests.setflags(write=False)
    return requests


record_tiny = cache(record_anew)
"""The same for tests that ask alike: a recording takes a second."""


def live_bytes(requests: Any) -> Any:
    """Return the bytes live after each event, unrounded."""
    size = requests["size_bytes"].astype(np.int64)
    kind = requests["kind"]
    return np.cumsum(np.where(kind == ALLOC, size, np.where(kind == FREE, -size, 0)))


def steps_of(requests: Any) -> list[Any]:
    """Cut the events at the marks: before the first step, the steps, nothing after."""
    marks = np.flatnonzero(requests["kind"] == MARK)
    assert marks[-1] == len(requests) - 1
    return np.split(requests, marks)[1:-1]


def shape_of(step: Any) -> list[tuple[int, int, int]]:
    """Return kind, size and age of each event: a free names how many allocations ago it began."""
    shape = []
    born: dict[int, int] = {}
    for kind, number, size in zip(
        step["kind"].tolist(), step["id"].tolist(), step["size_bytes"].tolist(), strict=True
    ):
        if kind == ALLOC:
            born[number] = len(born)
            shape.append((kind, size, 0))
        elif kind == FREE:
            shape.append((kind, size, len(born) - born[number] if number in born else -1))
    return shape


VARIANTS: list[dict[str, Any]] = [
    {},
    {"has_checkpoints": True},
    {"grad_accumulation": 2, "zero_grad": "start"},
    {"varies_context": True, "has_checkpoints": True},
    {"optimizer": "adamw-fused"},
    {"optimizer": "adamw-loop"},
    {"optimizer": "sgd"},
    {"dtype": "bfloat16"},
    {"dtype": "mixed", "has_checkpoints": True},
]


@pytest.mark.parametrize("training", VARIANTS, ids=str)
def test_every_free_ends_one_allocation(recorder: Any, training: dict[str, Any]) -> None:
    requests = record_tiny(recorder, **training)
    live: dict[int, int] = {}
    seen = 0
    for kind, number, size in zip(
        requests["kind"].tolist(),
        requests["id"].tolist(),
        requests["size_bytes"].tolist(),
        strict=True,
    ):
        if kind == ALLOC:
            assert number == seen, "ids are dense and in order of birth"
            assert size > 0
            seen += 1
            live[number] = size
        elif kind == FREE:
            assert live.pop(number) == size
        else:
            assert kind == MARK
    assert seen > 100
    assert np.count_nonzero(requests["kind"] == MARK) == 1 + STEPS


def parameter_bytes(model: Any) -> int:
    """Count the parameters by hand, float32, head tied to the embedding."""
    width = model.width
    attention = (width * 3 * width + 3 * width) + (width * width + width)
    mlp = (width * 4 * width + 4 * width) + (4 * width * width + width)
    norms = 2 * (2 * width)
    embeddings = model.vocab * width + model.context * width
    return int(4 * (embeddings + model.layers * (attention + mlp + norms) + 2 * width))


@pytest.mark.parametrize(
    ("optimizer", "copies"),
    [
        ({}, 2),
        ({"optimizer": "adamw-loop"}, 2),
        ({"optimizer": "sgd"}, 1),
        ({"optimizer": "adamw-fused"}, 2),
    ],
    ids=str,
)
def test_parameters_and_optimizer_state_stay(
    recorder: Any, optimizer: dict[str, Any], copies: int
) -> None:
    assert recorder.Training(batch=1, steps=1).optimizer == "adamw"
    model, _ = recorder.PRESETS["tiny"]
    parameters = parameter_bytes(model)
    assert parameters == 4 * model.parameter_count()
    live = live_bytes(record_tiny(recorder, **optimizer))
    # The fused update keeps one float32 step counter per parameter tensor on the device.
    counters = 4 * (12 * model.layers + 4) if "adamw-fused" in optimizer.values() else 0
    assert live[-1] == parameters * (1 + copies) + counters


def test_gradients_stay_when_they_are_dropped_at_the_start(recorder: Any) -> None:
    model, _ = recorder.PRESETS["tiny"]
    live = live_bytes(record_tiny(recorder, zero_grad="start"))
    assert live[-1] == 4 * parameter_bytes(model)


def test_parameters_come_before_the_first_mark(recorder: Any) -> None:
    model, _ = recorder.PRESETS["tiny"]
    requests = record_tiny(recorder)
    first_mark = int(np.argmax(requests["kind"] == MARK))
    assert live_bytes(requests)[first_mark] == parameter_bytes(model)


def test_the_peak_holds_at_least_what_the_optimizer_step_needs(recorder: Any) -> None:
    model, _ = recorder.PRESETS["tiny"]
    parameters = parameter_bytes(model)
    # Parameters, gradients and two moments, and for foreach the temporary square roots.
    assert live_bytes(record_tiny(recorder)).max() >= 5 * parameters
    assert live_bytes(record_tiny(recorder, optimizer="adamw-loop")).max() >= 4 * parameters


def test_checkpointing_lowers_the_peak_and_adds_allocations(recorder: Any) -> None:
    model, _ = recorder.PRESETS["tiny"]
    deep = recorder.replace(model, layers=8, context=256)
    peaks, births = [], []
    for has_checkpoints in (False, True):
        training = recorder.Training(steps=1, batch=8, has_checkpoints=has_checkpoints)
        requests = recorder.record(deep, training, "cpu").requests()
        peaks.append(int(live_bytes(requests).max()))
        births.append(np.count_nonzero(requests["kind"] == ALLOC))
    assert peaks[1] < peaks[0] / 2
    assert births[1] > births[0]


@pytest.mark.parametrize("training", VARIANTS, ids=str)
def test_steps_after_the_second_repeat(recorder: Any, training: dict[str, Any]) -> None:
    steps = [shape_of(step) for step in steps_of(record_tiny(recorder, **training))]
    assert len(steps) == STEPS == 4
    assert len(steps[2]) > 50
    if training.get("varies_context"):
        assert steps[2] != steps[3]
    else:
        assert steps[2] == steps[3]


def test_a_recording_can_be_repeated(recorder: Any) -> None:
    one = record_tiny(recorder, varies_context=True, has_checkpoints=True)
    assert np.array_equal(one, record_anew(recorder, varies_context=True, has_checkpoints=True))
    other = record_tiny(recorder, varies_context=True, has_checkpoints=True, seed=1)
    assert not np.array_equal(one, other)


def real_memory_events(recorder: Any, model: Any, training: Any) -> list[int]:
    """Train on real CPU tensors; return the size of each malloc, and minus it for each free."""
    from torch import profiler

    profile: Any = profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True)

    class Marks:
        """Turn the profiler on at the first mark and off at the last."""

        def mark(self, label: str) -> None:
            if label == "model built":
                profile.__enter__()

        def stop(self) -> None:
            profile.__exit__(None, None, None)

    recorder.train(model, training, "cpu", Marks())
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    return [int(event.nbytes()) for event in sorted(events, key=lambda event: event.start_ns())]


# Some PyTorch warn that one cycle is all there is, which it is here.
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning")
@pytest.mark.parametrize(
    "training",
    [
        *VARIANTS[1:3],
        *(pytest.param(each, marks=pytest.mark.long) for each in (VARIANTS[0], *VARIANTS[4:7])),
    ],
    ids=str,
)
def test_fakes_ask_for_the_memory_that_real_tensors_ask_for(
    recorder: Any, training: dict[str, Any]
) -> None:
    # Odd sizes, so that hardly anything else has the size of one of the program's tensors.
    model = recorder.Model(layers=2, width=96, heads=4, context=80, vocab=531)
    settings = recorder.Training(**{"batch": 3, "steps": 2, **training})
    requests = recorder.record(model, settings, "cpu").requests()
    first_mark = int(np.argmax(requests["kind"] == MARK))
    events = requests[first_mark:][requests["kind"][first_mark:] != MARK]
    sign = np.where(events["kind"] == ALLOC, 1, -1)
    fake = (events["size_bytes"].astype(np.int64) * sign).tolist()
    real = real_memory_events(recorder, model, settings)
    # Left out: scalars, which the CPU also makes for Python numbers, the one size that CPU kernels
    # also use inside themselves, and sizes that only they use.
    compared = {abs(size) for size in fake} - {4, 4 * 4 * model.width}
    fake = [size for size in fake if abs(size) in compared]
    real = [size for size in real if abs(size) in compared]
    assert len(fake) > 200
    assert fake == real


def test_the_command_writes_a_trace_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gmtrace"
    words = ["--preset", "tiny", "--steps", "2", "--device", "cpu", "-o", str(path)]
    done = subprocess.run(
        [sys.executable, str(RECORDER), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    trace = gmlake.load_trace(path)
    assert trace.labels == ("model built", "step 1, context 64", "step 2, context 64")
    assert f"{trace.allocations} allocations" in done.stdout


Captured = pytest.CaptureFixture[str]


def refused(recorder: Any, capsys: Captured, *words: str) -> str:
    """Run what ends with exit code 2; return the last line that it said."""
    with pytest.raises(SystemExit, match="2"):
        recorder.main(words)
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--preset", "tiny", "--heads", "5"], "--width 64 is not a multiple of --heads 5"),
        (["--steps", "0"], "0 is not a positive number"),
        (["--preset", "gpt5"], "invalid choice: 'gpt5'"),
    ],
)
def test_a_wrong_option_gets_one_clear_line(
    recorder: Any, capsys: Captured, words: list[str], reason: str
) -> None:
    assert reason in refused(recorder, capsys, *words)


def test_a_folder_that_is_not_there_is_refused_before_recording(
    recorder: Any, capsys: Captured, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "tiny.gmtrace"
    said = refused(recorder, capsys, "--preset", "tiny", "-o", str(path))
    assert f"there is no folder {tmp_path / 'missing'}" in said


def test_a_path_that_cannot_be_written_gets_one_clear_line(
    recorder: Any, capsys: Captured, tmp_path: Path
) -> None:
    assert recorder.main(["--preset", "tiny", "--steps", "1", "-o", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"record_without_gpu: {tmp_path}: Is a directory\n"
