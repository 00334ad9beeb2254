"""Planned training on a GPU against stitching and PyTorch's allocators: memory, speed, hit rate.

    PYTHONPATH=benchmarks python -m gpu.planned [--write]

Trains the adapters of gpu.model with gradients accumulated over micro-batches and an evaluation
every tenth step, each way in processes of its own: --rounds of them, every other round in the
opposite order, since a GPU that gets warm gets slower. The losses of every run have to be those of
the first, bit for bit. `planned` watches and plans, `loaded` begins with the plans that it saved.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import machine
from gpu.settings import environment_with

GIB = 1 << 30
WAYS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "stitch": "",
    "planned": "",
    "loaded": "",
}
"""What PYTORCH_CUDA_ALLOC_CONF has to be for each."""
EVALUATE_EVERY = 10
_LONGEST_RUN_SECONDS = 200


class Training:
    """A model with its optimizer, trained and evaluated on random tokens."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Make the model on the GPU."""
        import torch

        from gpu.model import SIZES, Tuned

        self.options, self.sizes = options, SIZES[options.size]
        torch.manual_seed(0)
        with torch.device("cuda"):
            self.model = Tuned(self.sizes)
        trained = [part for part in self.model.parameters() if part.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=True)

    def _loss(self) -> Any:  # noqa: ANN401 (a tensor, where PyTorch may be absent)
        import torch

        shape = (self.options.batch, self.sizes.longest + 1)
        return self.model.loss(torch.randint(self.sizes.vocab, shape, device="cuda"))

    def train(self) -> float:
        """Take one optimizer step; return the loss of the last micro-batch."""
        self.optimizer.zero_grad()
        for _ in range(self.options.accumulate):
            loss = self._loss()
            (loss / self.options.accumulate).backward()
        self.optimizer.step()
        return float(loss)

    def evaluate(self) -> float:
        """Return the loss of one batch, without gradients."""
        import torch

        with torch.no_grad():
            return float(self._loss())


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Run one way; return what was seen."""
    import torch

    import gmlake

    auto: gmlake.AutoPlan | None = None
    if options.way in ("stitch", "planned", "loaded"):
        gmlake.enable()
    if options.way == "planned":
        auto = gmlake.AutoPlan()
    if options.way == "loaded":
        auto = gmlake.AutoPlan.load(options.plan)
    torch.use_deterministic_algorithms(True)  # noqa: FBT003 (its own signature)
    torch.utils.deterministic.fill_uninitialized_memory = False
    training = Training(options)
    losses, seconds, reports = [], [], []
    for number in range(1, options.steps + 1):
        is_evaluation = number % EVALUATE_EVERY == 0
        kind = "evaluation" if is_evaluation else "train"
        step: AbstractContextManager[Any] = auto.step(kind) if auto else nullcontext()
        began = time.perf_counter()
        with step:
            loss = training.evaluate() if is_evaluation else training.train()
        seconds.append(time.perf_counter() - began)
        losses.append(loss.hex())
        if auto and auto.last:
            reports.append({**asdict(auto.last), "hit_rate": auto.last.hit_rate})
    if auto and options.way == "planned":
        auto.save(options.plan)
    numbered = list(enumerate(seconds, 1))[options.steps // 2 :]
    late = [value for number, value in numbered if number % EVALUATE_EVERY]
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "peak_allocated_bytes": allocated,
        "peak_reserved_bytes": reserved,
        "utilization": round(allocated / reserved, 4),
        "median_train_seconds": round(statistics.median(late), 4),
        "seconds": [round(value, 4) for value in seconds],
        "losses": losses,
        "steps": reports,
    }


def run(way: str, options: argparse.Namespace, plan: Path) -> dict[str, Any]:
    """Run one way in a process of its own; return what it printed, or `failed`."""
    command = [sys.executable, "-m", "gpu.planned", "--way", way, "--plan", str(plan)]
    for name in ("size", "steps", "batch", "accumulate"):
        command += [f"--{name}", str(getattr(options, name))]
    variables = environment_with(WAYS[way])
    return machine.told_by(command, env=variables, seconds=_LONGEST_RUN_SECONDS)


def run_all(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Run every way, and tell of the first round's runs; the times are medians over the rounds."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.gmplan"
        for number in range(options.rounds):
            for way in list(WAYS)[:: -1 if number % 2 else 1]:
                runs[way].append(run(way, options, plan))
                print(f"round {number}, {way}: {runs[way][-1].get('failed', 'done')}", flush=True)
    expected = runs["default"][0].get("losses")
    summary = {}
    for way, rounds in runs.items():
        told = next((one for one in rounds if "failed" in one), rounds[0])
        same = [expected is not None and one.pop("losses", None) == expected for one in rounds]
        times = [one.get("median_train_seconds", 0.0) for one in rounds]
        summary[way] = {
            **told,
            "has_same_losses": all(same),
            "rounds_seconds": times,
            "median_train_seconds": round(statistics.median(times), 4),
        }
    return summary


def show(figures: dict[str, Any]) -> None:
    """Print one row for each way."""
    columns = ("way", "allocated", "reserved", "used", "s/step", "first hit", "last hit", "losses")
    table = Table(*columns, title=f"{figures['size']}; sizes in GiB")
    for way, told in figures["runs"].items():
        if "failed" in told:
            table.add_row(way, told["failed"].splitlines()[-1])
            continue
        planned = [step["hit_rate"] for step in told["steps"] if step["served"]]
        table.add_row(
            way,
            f"{told['peak_allocated_bytes'] / GIB:.3f}",
            f"{told['peak_reserved_bytes'] / GIB:.3f}",
            f"{told['utilization']:.4f}",
            f"{told['median_train_seconds']:.3f}",
            f"{planned[0]:.4f}" if planned else "",
            f"{planned[-1]:.4f}" if planned else "",
            "same" if told["has_same_losses"] else "DIFFER",
        )
    Console().print(table)


def main() -> int:
    """Measure, print, and keep it with --write; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", default="1b", help="of the model, in gpu.model")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch", type=int, default=8, help="sequences per micro-batch")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches per step")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, help="run only this one, here, and print JSON")
    parser.add_argument("--plan", type=Path, help="the plan file of --way planned and loaded")
    parser.add_argument("--output", type=Path, help="file for the figures, as JSON")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_planned.json")
    options = parser.parse_args()
    if options.way:
        json.dump(train(options), sys.stdout)
        return 0
    runs = run_all(options)
    named = ("size", "steps", "batch", "accumulate", "rounds")
    figures = {name: getattr(options, name) for name in named} | {"runs": runs}
    show(figures)
    if options.write or options.output:
        gpu = machine.devices_of(runs)
        print(machine.write("gpu_planned", figures, path=options.output, gpu=gpu))
    is_good = all("failed" not in told and told["has_same_losses"] for told in runs.values())
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
