"""Programs that record themselves; each prints what it saw as JSON.

The first argument names one of the functions below.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from examples.train_gpt import GPT, Config, language_loss, random_batch

import gmlake
from gmlake.pictures.figures import CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = Config(layers=2, width=256, heads=4, context=128, vocab=1000)
# Plans are for what is larger than 1 MiB.
PLANNED = Config(layers=2, width=1024, heads=4, context=256, vocab=1000)


class Training:
    """A GPT, and one step of it."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.config = config
        self.device = torch.device("cuda")
        with self.device:
            self.model = GPT(config, has_checkpoints=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self) -> None:
        """Train once."""
        self.optimizer.zero_grad(set_to_none=True)
        batch = random_batch(self.config, 4, self.config.context, self.device)
        language_loss(self.model, batch).backward()
        self.optimizer.step()


def sizes_by_category(seen: Any) -> dict[str, int]:
    """Return the requested bytes of all allocations, by category."""
    sizes: Counter[str] = Counter()
    lives = seen.lives
    for category, size in zip(
        seen.categories.tolist(), lives.requested_bytes.tolist(), strict=True
    ):
        sizes[CATEGORIES[category]] += size
    return dict(sizes)


def told(recording: gmlake.Recording) -> dict[str, Any]:
    """Return what a recording knows of device 0."""
    snapshot: Any = recording.snapshot
    seen = snapshot.devices[0]
    lives = seen.lives
    table = recording.table.sites()
    places = {table[number][:2] for number in set(lives.site.tolist()) if number in table}
    frames = [site.frames for site in table.values() if site.frames]
    return {
        "places": sorted(map(list, places)),
        "labels": [label for _, label in seen.marks],
        "sizes": sizes_by_category(seen),
        "frames": [str(path[0]) for path in frames],
        "events": len(seen.events),
        "total": seen.total_events,
        "unplaced": int((lives.site[lives.born >= 0] == 0).sum()),
        "text": repr(recording),
        "drawn": recording._repr_html_(),
    }


def of_model(tensors: Any) -> int:
    """Return what tensors take."""
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def whole() -> dict[str, Any]:
    """A training is recorded from before its model was made."""
    gmlake.enable()
    with gmlake.record() as recording:
        training = Training()
        for _ in range(3):
            training.step()
    parameters = list(training.model.parameters())
    return told(recording) | {
        "parameter_bytes": of_model([*parameters, *training.model.buffers()]),
        "gradient_bytes": of_model(parameter.grad for parameter in parameters),
        "state_bytes": of_model(
            value
            for state in training.optimizer.state.values()
            for value in state.values()
            if value.is_cuda
        ),
    }


def later() -> dict[str, Any]:
    """A recording begins in the middle, with a model and an optimizer that are known."""
    gmlake.enable()
    training = Training()
    training.step()
    recording = gmlake.record(1000, model=training.model, optimizers=training.optimizer, frames=4)
    try:
        gmlake.record()
    except RuntimeError as error:
        second = str(error)
    with gmlake.phase("measuring"):
        training.step()
    ended = gmlake.stop_recording()
    recording.stop()
    before = repr(recording)
    training.step()
    return told(recording) | {
        "second": second,
        "is_same": ended is recording,
        "is_unchanged": before == repr(recording),
        "again": gmlake.stop_recording(),
        "history": gmlake.enable().lake().history()[1],
    }


def beside_pytorch() -> dict[str, Any]:
    """PyTorch's own recording ends and begins while one of gmlake's is on."""
    gmlake.enable()
    training = Training()
    record_history: Any = torch.cuda.memory._record_memory_history  # noqa: SLF001
    record_history(max_entries=500, stacks="python", context=None)
    with gmlake.record() as recording:
        training.step()
        record_history(enabled=None)
        training.step()
        record_history(max_entries=50, stacks="python", context=None)
        training.step()
    training.step()
    kept = torch.cuda.memory._snapshot()["device_traces"][0]  # noqa: SLF001
    return told(recording) | {"kept": len(kept)}


def steps() -> dict[str, Any]:
    """Steps of an AutoPlan are marked, and those of optimizers in them are not."""
    auto = gmlake.AutoPlan()
    training = Training(PLANNED)
    with gmlake.record() as recording:
        for _ in range(6):
            with auto.step():
                training.step()
        training.step()
    return told(recording) | {"hit_rate": auto.last.hit_rate if auto.last else 0}


def out_of_memory() -> dict[str, Any]:
    """What a recording saw survives the error that ended it."""
    gmlake.enable()
    recording = None
    try:
        with gmlake.record() as recording:
            training = Training()
            training.step()
            torch.empty(1 << 40, device="cuda")
    except torch.OutOfMemoryError as error:
        refusal = str(error)
    assert recording is not None
    return told(recording) | {"refusal": refusal}


def forked() -> dict[str, Any]:
    """A child records nothing, whatever its parent's threads were at."""
    gmlake.enable()
    with gmlake.record() as recording:
        training = Training()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                training.step()

        thread = threading.Thread(target=work)
        thread.start()
        codes = []
        for _ in range(8):
            child = os.fork()
            if not child:
                has_ended = gmlake.stop_recording() is None and not recording.is_on
                with gmlake.phase("in the child"):
                    has_hooks = bool(torch.nn.modules.module._global_forward_hooks)  # noqa: SLF001
                os._exit(0 if has_ended and not has_hooks else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        thread.join()
    return {"codes": codes, "text": repr(recording)}


def cost() -> dict[str, Any]:
    """Medians of a step, in ms, off, on, and with call paths, in turn."""
    gmlake.enable()
    training = Training()
    rounds = int(os.environ.get("ROUNDS", "20"))
    for _ in range(3):
        training.step()
    ways: dict[str, dict[str, Any] | None] = {"off": None, "on": {}, "frames": {"frames": True}}
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, options in ways.items():
            if options is not None:
                gmlake.record(1 << 16, model=training.model, **options)
                training.step()  # places are known from here on
            begin = time.perf_counter()
            for _ in range(5):
                training.step()
            torch.cuda.synchronize()
            seen[name].append(1000 * (time.perf_counter() - begin) / 5)
            gmlake.stop_recording()
    return {name: statistics.median(times) for name, times in seen.items()}


def main() -> None:
    """Run one function and print its results, with the warnings."""
    work: Callable[[], dict[str, Any]] = globals()[sys.argv[1]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = work()
    texts = [str(warning.message) for warning in caught]
    print(json.dumps(results | {"warnings": texts}))


if __name__ == "__main__":
    main()
