"""Programs whose steps AutoPlan plans; each prints what it saw as JSON.

The first argument names one of the functions below.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from examples.train_gpt import GPT, Config, language_loss, random_batch
from tests.standin.refusal import refused
from torch import nn

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = Config(layers=4, width=1024, heads=8, context=256, vocab=2000)
MIB = 1 << 20


class Training:
    """A checkpointed GPT, and one step of it.

    zeroes: "before", "after", or "in place" (gradients are kept, and filled with zeros).
    """

    def __init__(self, zeroes: str = "before", accumulate: int = 2) -> None:
        self.device = torch.device("cuda")
        with self.device:
            self.model: nn.Module = GPT(CONFIG, has_checkpoints=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.zeroes = zeroes
        self.accumulate = accumulate

    def _loss(self, length: int) -> torch.Tensor:
        return language_loss(self.model, random_batch(CONFIG, 4, length, self.device))

    def step(self, length: int = CONFIG.context) -> None:
        self.model.train()
        if self.zeroes == "before":
            self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.accumulate):
            self._loss(length).backward()
        self.optimizer.step()
        if self.zeroes == "after":
            self.optimizer.zero_grad(set_to_none=True)
        elif self.zeroes == "in place":
            self.optimizer.zero_grad(set_to_none=False)

    @torch.no_grad()
    def evaluate(self) -> None:
        self.model.eval()
        self._loss(CONFIG.context)


def told(auto: gmlake.AutoPlan) -> list[dict[str, Any]]:
    """Return all reports of an AutoPlan."""
    return [
        {**asdict(report), "hit_rate": report.hit_rate, "is_planned": report.is_planned}
        for report in auto.reports
    ]


def run(auto: gmlake.AutoPlan, steps: int, work: Callable[[int], object]) -> list[dict[str, Any]]:
    """Do `work` in each of so many steps."""
    for number in range(steps):
        with auto.step():
            work(number)
    return told(auto)


def evaluating() -> dict[str, Any]:
    """Evaluation steps between training steps have plans of their own."""
    auto = gmlake.AutoPlan()
    training = Training()
    for number in range(1, 51):
        is_evaluation = number % 5 == 0
        with auto.step("evaluation" if is_evaluation else "train"):
            training.evaluate() if is_evaluation else training.step()
    return {"steps": told(auto), "text": repr(auto)}


def lengths() -> dict[str, Any]:
    """Sequences of three lengths in turn: each gets a plan once it has come back."""
    auto = gmlake.AutoPlan()
    training = Training()
    return {"steps": run(auto, 24, lambda number: training.step((256, 128, 192)[number % 3]))}


def kept_output() -> dict[str, Any]:
    """The output of a step lives until the next step has made its own."""
    auto = gmlake.AutoPlan()
    training = Training("after")
    kept: list[torch.Tensor] = []

    def work(_number: int) -> None:
        training.step()
        output = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
        kept[:] = [output]

    return {"steps": run(auto, 16, work)}


def saved(path: str) -> dict[str, Any]:
    """Save after a few steps."""
    auto = gmlake.AutoPlan()
    empty = refused(lambda: auto.save(path))
    training = Training()
    steps = run(auto, 8, lambda _number: training.step())
    written = auto.save(path)
    return {"steps": steps, "path": str(written), "empty": empty}


def loaded(path: str) -> dict[str, Any]:
    """Begin with saved plans; losses of warnings are told."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        auto = gmlake.AutoPlan.load(path)
        training = Training()
        torch.zeros(1, device="cuda")
        steps = run(auto, 8, lambda _number: training.step())
    texts = [str(item.message) for item in seen if issubclass(item.category, gmlake.GmlakeWarning)]
    return {"steps": steps, "warnings": texts}


class Experts(nn.Module):
    """A mixture of experts whose parts of the tokens are drawn anew for each pass."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(count)
        )
        self.drawn = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        self.drawn += 1
        shares = [1 + (self.drawn * 7 + index * 5) % 11 for index in range(len(self.experts))]
        cuts = [tokens.shape[0] * sum(shares[:i]) // sum(shares) for i in range(len(shares) + 1)]
        parts = [
            expert(tokens[begin:end])
            for expert, begin, end in zip(self.experts, cuts, cuts[1:], strict=False)
        ]
        return torch.cat(parts).view_as(x)


class Mixture(nn.Module):
    """Blocks of a GPT, with experts between."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = GPT(CONFIG)
        self.mixed = nn.ModuleList(Experts(CONFIG.width, 4) for _ in CONFIG_LAYERS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.gpt.tokens(tokens)
        for block, mixed in zip(self.gpt.blocks, self.mixed, strict=True):
            x = x + mixed(block(x))
        return nn.functional.linear(self.gpt.norm(x), self.gpt.tokens.weight)


CONFIG_LAYERS = range(CONFIG.layers)


def experts() -> dict[str, Any]:
    """Train a mixture of experts whose shares of the tokens differ in each step."""
    auto = gmlake.AutoPlan()
    training = Training("after", accumulate=1)
    with training.device:
        training.model = Mixture()
    training.optimizer = torch.optim.AdamW(training.model.parameters())
    return {"steps": run(auto, 8, lambda _number: training.step())}


def turns() -> dict[str, Any]:
    """Break a step off, nest steps, close."""
    auto = gmlake.AutoPlan()
    training = Training("after")
    seen: dict[str, Any] = {"steps": run(auto, 8, lambda _number: training.step())}
    try:
        with auto.step():
            raise KeyError("a step fails")  # noqa: TRY301
    except KeyError:
        seen["after_exception"] = len(auto.reports)
    with auto.step():
        seen["nested"] = refused(auto.step().__enter__)
        training.step()
    seen["bad_kind"] = refused(lambda: auto.step(3))  # type: ignore[arg-type]
    seen["last"] = told(auto)[-1]
    seen["text"] = str(auto.last)
    step, count = auto.step(), len(auto.reports)
    with step:
        seen["entered_twice"] = refused(step.__enter__)
        training.step()
    seen["reports_of_it"] = len(auto.reports) - count
    auto.close()
    return seen


def out_of_memory() -> dict[str, Any]:
    """A planned step runs out of memory, which is caught; the steps after it are planned."""
    auto = gmlake.AutoPlan()
    training = Training("after")
    steps = run(auto, 8, lambda _number: training.step())
    total = torch.cuda.get_device_properties(0).total_memory
    taken = torch.cuda.memory_reserved()
    try:
        with auto.step():
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        refusal = str(error).splitlines()[0]
    # Nearly everything is taken outside of the plan: what is left has to do.
    held = torch.empty(total - taken - 4 * MIB, dtype=torch.uint8, device="cuda")
    run(auto, 2, lambda _number: training.step())
    del held
    torch.cuda.empty_cache()
    trimmed = torch.cuda.memory_reserved()
    steps = run(auto, 8, lambda _number: training.step())
    return {"steps": steps, "refusal": refusal, "trimmed": trimmed}


def refusals() -> dict[str, Any]:
    """A policy that knows no steps."""
    seen: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as told_of:
        warnings.simplefilter("always")
        gmlake.disable()
        gmlake.enable("expandable")
        auto = gmlake.AutoPlan()
        torch.zeros(1, device="cuda")
        with auto.step():
            torch.zeros(1, device="cuda")
        seen["reports"] = len(auto.reports)
    seen["warnings"] = [str(item.message) for item in told_of]
    return seen


def compiled() -> dict[str, Any]:
    """A compiled model is planned as any other."""
    auto = gmlake.AutoPlan()
    training = Training("after")
    training.model.compile(backend="aot_eager")
    return {"steps": run(auto, 9, lambda _number: training.step())}


def forked() -> dict[str, Any]:
    """Children leave the lakes alone, whose locks a thread of the parent held during the fork."""
    auto = gmlake.AutoPlan()
    training = Training("after")
    run(auto, 6, lambda _number: training.step())
    is_over = threading.Event()

    def allocate() -> None:
        while not is_over.is_set():
            torch.empty(1000, device="cuda")

    thread = threading.Thread(target=allocate)
    thread.start()
    with auto.step():
        codes = [child_of(auto) for _ in range(12)]
    is_over.set()
    thread.join()
    return {"codes": codes, "steps": run(auto, 6, lambda _number: training.step())}


def child_of(auto: gmlake.AutoPlan) -> int:
    """Fork a child that computes on the CPU in steps of its own; return its exit code."""
    child = os.fork()
    if not child:
        signal.alarm(300)
        try:
            with auto.step():
                model = nn.Linear(3, 3)
                model(torch.ones(3))
                torch.optim.SGD(model.parameters(), lr=0.1).step()
            auto.close()
            os._exit(0 if "no step is planned yet" in refused(lambda: auto.save("never")) else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def objects(auto: gmlake.AutoPlan) -> dict[str, int]:
    """Count what could grow: tensors, and what is remembered of steps."""
    gc.collect()
    return {
        "tensors": sum(isinstance(item, torch.Tensor) for item in gc.get_objects()),
        "allocated": torch.cuda.memory_allocated(),
        "reports": len(auto.reports),
    }


def threads() -> dict[str, Any]:
    """Steps of two threads: whoever comes while one is open is refused, the others are planned."""
    auto = gmlake.AutoPlan()
    training = Training("after")
    run(auto, 8, lambda _number: training.step())
    told_of: list[str] = []

    def meddle() -> None:
        while "open already" not in " ".join(told_of):
            told_of.append(refused(auto.step().__enter__) or refused(auto.close))
            time.sleep(0.001)

    thread = threading.Thread(target=meddle)
    with auto.step():
        thread.start()
        training.step()
        thread.join()
    return {"refusals": told_of, "steps": told(auto)}


def main() -> None:
    """Run the function that the first argument names."""
    name, *arguments = sys.argv[1:]
    json.dump(globals()[name](*arguments), sys.stdout)


if __name__ == "__main__":
    main()
