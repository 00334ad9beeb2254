"""The papers' trainings, tiny: what they allocate is what they say they are."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.standin.places import ROOT

import gmlake
from gmlake.trace import Kind

BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

from papers.jobs import JOBS, Job  # noqa: E402
from papers.measure import CAPACITIES, WAYS, Bracket, largest  # noqa: E402
from papers.record import record_apart  # noqa: E402
from papers.schedule import most_waiting, turns  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Told = dict[str, Any]
HELD = 1 << 20
"""More than tokens, losses and the counters of an optimizer take, less than what is compared."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Told]:
    """Record a job tiny, once; `changed`: its fields."""
    folder = tmp_path_factory.mktemp("recordings")
    done: dict[Job, Told] = {}

    def get(name: str, **changed: Any) -> Told:
        job = replace(JOBS[name], steps=3, **changed)
        if job not in done:
            path = folder / f"{len(done)}.gmtrace"
            done[job] = {**record_apart(job, path, is_tiny=True), "path": path}
        return done[job]

    return get


def kept(counts: Iterable[int], bytes_each: int) -> int:
    """Bytes of tensors, each a block of its own."""
    return sum(math.ceil(count * bytes_each / 512) * 512 for count in counts)


def of_opt(ranks: int) -> list[int]:
    """Elements of each parameter of the tiny OPT that one of so many ranks has."""
    width, inner, vocab, layers = 128, 256, 1024, 8
    layer = [*[width * width, width] * 4, *[width] * 4, inner * width, inner, width * inner, width]
    outside = [vocab * width, 2050 * width, width, width]
    rows = {2050 * width: math.ceil(2050 / ranks) * width}
    return [rows.get(count, count // ranks) for count in [*outside, *layer * layers]]


def of_llama(layers: int, tensor: int, *, is_first: bool) -> list[int]:
    """Elements of each parameter of layers of the tiny Llama, divided among `tensor` ranks."""
    width, inner, vocab = 128, 256, 1024
    layer = [width, width, 3 * width * width // tensor, width * width // tensor]
    layer += [2 * inner * width // tensor, inner * width // tensor]
    return [vocab * width // tensor] * is_first + layer * layers


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *("opt-13b-LRO", "vicuna-13b-R", "gpt-neox-20b-LR-16-ranks", "gpt2-345m-VR"),
        *("llama2-7b-ZOR", "qwen1.5-moe-V", "qwen2.5-72b-R", "qwen2.5-14b-V-tensor-4"),
    ],
)
def test_every_family_is_recorded(name: str, recorded: Callable[..., Told]) -> None:
    trace = gmlake.load_trace(recorded(name)["path"])
    kinds = trace.requests["kind"]
    assert np.count_nonzero(kinds == Kind.MARK) == 3
    assert np.count_nonzero(kinds == Kind.ALLOC) > 1000
    assert not trace.requests["address"].any()
    marks = np.flatnonzero(kinds == Kind.MARK)
    assert (np.diff(marks) > 100).all()


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_has_its_share_of_parameters_and_masters(
    ranks: int, recorded: Callable[..., Told]
) -> None:
    counts = of_opt(ranks)
    told = recorded("opt-13b-N", replicas=ranks)
    wanted = kept(counts, 2) + kept(counts, 4)
    assert wanted <= told["built_bytes"] <= wanted + 4096


@pytest.mark.long
@pytest.mark.parametrize("tensor", [1, 2])
def test_a_stage_has_its_layers_and_a_float32_buffer(
    tensor: int, recorded: Callable[..., Told]
) -> None:
    counts = of_llama(4, tensor, is_first=True)
    told = recorded("llama2-7b-R", tensor=tensor)
    places = kept([2 * 64 * 16], 2)
    wanted = kept(counts, 2) + kept([sum(counts)], 4) + kept(counts, 4) + places
    assert told["built_bytes"] == wanted


@pytest.mark.long
def test_zero_divides_the_masters(recorded: Callable[..., Told]) -> None:
    whole, shared = recorded("llama2-7b-VR"), recorded("llama2-7b-VR", strategy="ZVR")
    counts = of_llama(4, 2, is_first=True)
    saved = kept(counts, 4) - kept([math.ceil(count / 2) for count in counts], 4)
    assert whole["built_bytes"] - shared["built_bytes"] == saved


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "without", "counts"),
    [
        ("opt-13b-R", "RO", of_opt(4)),
        ("llama2-7b-R", "OR", of_llama(4, 2, is_first=True)),
    ],
)
def test_offload_takes_the_states_of_the_optimizer_away(
    name: str, without: str, counts: list[int], recorded: Callable[..., Told]
) -> None:
    there, away = recorded(name), recorded(name, strategy=without)
    states = 3 * kept(counts, 4) + kept([1] * len(counts), 4)
    assert there["kept_bytes"] - away["kept_bytes"] == pytest.approx(states, abs=HELD // 8)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "stored"), [("opt-13b-R", "N"), ("gpt2-345m-R", "N"), ("qwen1.5-moe-VR", "V")]
)
def test_recomputation_lowers_the_live_peak(
    name: str, stored: str, recorded: Callable[..., Told]
) -> None:
    job = JOBS[name]
    twice, once = recorded(name, batch=128), recorded(name, batch=128, strategy=stored)
    assert job.strategy != stored
    assert max(twice["peaks"]) + 16 * HELD < max(once["peaks"])


@pytest.mark.long
def test_adapters_leave_the_model_without_states(recorded: Callable[..., Told]) -> None:
    all_trained, adapters = recorded("vicuna-13b-R"), recorded("vicuna-13b-LR")
    assert adapters["built_bytes"] < 0.75 * all_trained["built_bytes"]


@pytest.mark.long
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 8), (4, 8)])
def test_interleaving_holds_more_micro_batches(
    stages: int, micro_batches: int, recorded: Callable[..., Told]
) -> None:
    held = {}
    for strategy, chunks in (("N", 1), ("V", 2)):
        changed = {"strategy": strategy, "stages": stages, "micro_batches": micro_batches}
        told = recorded("gpt2-345m-N", **changed)
        held[chunks] = told["peaks"][-1] - told["kept_bytes"]
    wanted = most_waiting(stages, 2, micro_batches) / 2 / most_waiting(stages, 1, micro_batches)
    assert wanted > 1
    assert held[2] / held[1] == pytest.approx(wanted, rel=0.04)


@pytest.mark.long
def test_what_was_sent_is_freed(recorded: Callable[..., Told]) -> None:
    # As many inputs of layers wait: 4 micro-batches before 2 layers, 8 before one.
    told = [recorded("llama2-7b-R", batch=128, stages=stages) for stages in (4, 8)]
    few, many = (each["peaks"][-1] - each["kept_bytes"] for each in told)
    sent = 64 * 128 * 128 * 2
    assert few > 8 * sent
    assert many - few < sent


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_every_micro_batch_goes_forward_and_back_once(stages: int, chunks: int) -> None:
    micro_batches = 3 * stages
    waiting, most, seen = [0] * chunks, 0, [0] * chunks
    for turn in turns(stages, chunks, micro_batches):
        waiting[turn.chunk] += 1 if turn.is_forward else -1
        seen[turn.chunk] += turn.is_forward
        assert min(waiting) >= 0
        most = max(most, sum(waiting))
    assert waiting == [0] * chunks
    assert seen == [micro_batches] * chunks
    assert most == most_waiting(stages, chunks, micro_batches)
    if chunks == 1:
        assert most == stages


def test_the_order_is_the_published_one() -> None:
    # Megatron-LM, "virtual pipeline" of 2 stages with 2 chunks and 4 micro-batches, first stage.
    order = "".join(f"{'F' if turn.is_forward else 'B'}{turn.chunk}" for turn in turns(2, 2, 4))
    assert order == "F0F0F1F1F0B1F0B1F1B0F1B0B1B1B0B0"


def run(program: str, *words: str) -> None:
    command = [sys.executable, str(BENCHMARKS / "papers" / program), *words]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_every_policy_is_measured(tmp_path: Path) -> None:
    run("record.py", "--output", str(tmp_path), "--only", "llama2-7b-R", "--size", "tiny")
    (recording,) = tmp_path.iterdir()
    before = recording.stat().st_mtime_ns
    output = tmp_path / "papers.json"
    options = ["--only", "llama2-7b-R", "opt-13b-LR", "--size", "tiny", "--no-search"]
    run("measure.py", str(tmp_path), *options, "--output", str(output))
    assert recording.stat().st_mtime_ns == before
    jobs = json.loads(output.read_text(encoding="utf-8"))["jobs"]
    assert [job["name"] for job in jobs] == ["llama2-7b-R", "opt-13b-LR"]
    for job in jobs:
        assert set(job["policies"]) == set(WAYS)
        for told in job["policies"].values():
            assert told["refused"] == 0
            assert 0 < told["live_bytes"] <= told["reserved_bytes"] <= told["wanted_bytes"]
            assert told["driver_calls"] > 0
            assert told["driver_ms"] > 0


@dataclass
class OneBlock:
    """Recordings of a job that takes 1 GiB for each sequence and 3 GiB beside."""

    job: Job
    traces: dict[int, gmlake.Trace]

    def __getitem__(self, batch: int) -> gmlake.Trace:
        requests = np.zeros(1, gmlake.load_trace(SHIPPED).requests.dtype)
        requests["kind"] = Kind.ALLOC
        requests["size_bytes"] = (3 + batch) << 30
        self.traces[batch] = gmlake.Trace(requests=requests)
        return self.traces[batch]


SHIPPED = ROOT / "examples" / "traces" / "gpt2-xl.gmtrace"


@pytest.mark.parametrize("grain", [1, 4])
@pytest.mark.parametrize("begin", [4, 60, 200])
def test_the_largest_batch_is_found(grain: int, begin: int) -> None:
    batches: Any = OneBlock(replace(JOBS["llama2-7b-R"], batch=begin, grain=grain), {})
    found = largest(batches, CAPACITIES["80GiB"])
    assert all(bracket.is_exact(grain) for bracket in found.values())
    assert {bracket.fits for bracket in found.values()} == {77 // grain * grain}
    assert len(batches.traces) <= 6


def test_a_bracket_asks_what_it_does_not_know() -> None:
    bracket = Bracket()
    bracket.see(8, has_fitted=True)
    assert bracket.within(3, 2) == 10
    bracket.see(20, has_fitted=False)
    assert bracket.within(31, 2) == 18
    assert not bracket.is_exact(2)
    bracket.see(18, has_fitted=True)
    assert bracket.is_exact(2)
