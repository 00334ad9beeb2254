"""Programs that record themselves; each prints what it saw as JSON.

The first argument names one of the functions below.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from examples.train_gpt import GPT, Config, language_loss, random_batch

import gmlake
from gmlake.pictures.figures import CATEGORIES
from gmlake.pytorch.recording import Recording
from gmlake.snapshots.model import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = Config(layers=2, width=256, heads=4, context=128, vocab=1000)
record_history: Any = torch.cuda.memory._record_memory_history  # noqa: SLF001 (its name)


class Training:
    """A GPT, and one step of it."""

    def __init__(self) -> None:
        self.device = torch.device("cuda")
        with self.device:
            self.model = GPT(CONFIG, has_checkpoints=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self) -> None:
        """Train once."""
        self.optimizer.zero_grad(set_to_none=True)
        batch = random_batch(CONFIG, 4, CONFIG.context, self.device)
        language_loss(self.model, batch).backward()
        self.optimizer.step()


def told(recording: Recording) -> dict[str, Any]:
    """Return what a recording knows of device 0."""
    seen = recording.snapshot[0]
    sizes: Counter[str] = Counter()
    told = seen.told_categories
    for number, size in enumerate(seen.lives.requested_bytes.tolist()):
        sizes[CATEGORIES[UNKNOWN if told is None else told[number]]] += size
    sites = [recording.snapshot.sites.get(number) for number in seen.lives.site.tolist()]
    return {
        "labels": [label for _, label in seen.marks],
        "sizes": dict(sizes),
        "lines": sorted({frame for site in sites if site for frame in site.frames}),
        "events": int((seen.events["kind"] != 8).sum()),
        "views": len(seen.views),
        "pairs": len(seen.stream_pairs),
        "calls": sum(seen.counters.get("driver_calls", {}).values()),
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
    return told(recording)


def later() -> dict[str, Any]:
    """A recording begins in the middle, with a model and an optimizer that are known."""
    gmlake.enable()
    training = Training()
    training.step()
    recording = gmlake.record(1000, model=training.model, optimizers=training.optimizer)
    training.step()
    during = len(gmlake.snapshot()[0].events)
    recording.stop()
    recording.stop()
    before = repr(recording.snapshot)
    training.step()
    parameters = list(training.model.parameters())
    values = [value for state in training.optimizer.state.values() for value in state.values()]
    return told(recording) | {
        "during": during,
        "is_unchanged": before == repr(recording.snapshot),
        "is_kept": torch._C._cuda_isHistoryEnabled(),  # noqa: SLF001
        "parameter_bytes": of_model([*parameters, *training.model.buffers()]),
        "gradient_bytes": of_model(parameter.grad for parameter in parameters),
        "state_bytes": of_model(value for value in values if value.is_cuda),
    }


def beside_pytorch() -> dict[str, Any]:
    """The program keeps a history of its own, before and after a recording."""
    gmlake.enable()
    training = Training()
    record_history(max_entries=50, stacks="python")
    with gmlake.record() as recording:
        training.step()
    training.step()
    kept = torch.cuda.memory._snapshot()["device_traces"][0]  # noqa: SLF001
    return told(recording) | {"kept": len(kept)}


def without_lines() -> dict[str, Any]:
    """The events alone are recorded, of PyTorch's allocator, which serves."""
    with gmlake.record(frames=False) as recording:
        Training().step()
    return told(recording)


def stitched() -> dict[str, Any]:
    """A stitched view and an order of streams survive the file."""
    gmlake.enable(capacity="256MiB")
    with gmlake.record() as recording:
        blocks = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
        del blocks[::2]
        whole = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        address = whole.data_ptr()
        other = torch.cuda.Stream()
        del whole
        with torch.cuda.stream(other):
            held = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    seen = recording.snapshot
    seen.save(sys.argv[2])
    again = gmlake.load(sys.argv[2])
    return told(recording) | {
        "is_at_view": address == held.data_ptr(),
        "blocks": seen[0].blocks["address"].tolist(),
        "address": held.data_ptr(),
        "bytes": [seen[0].reserved_bytes, seen[0].live_bytes, seen[0].free_bytes],
        "again": [again[0].reserved_bytes, again[0].live_bytes, again[0].free_bytes],
        "counted": [torch.cuda.memory_reserved(), torch.cuda.memory_allocated()],
        "views_again": len(again[0].views),
        "pieces": [seen[0].pieces.tolist() == again[0].pieces.tolist(), len(seen[0].pieces)],
    }


def out_of_memory() -> dict[str, Any]:
    """What a recording saw survives the error that ended it."""
    gmlake.enable()
    recording = None
    try:
        with gmlake.record() as recording:
            Training().step()
            torch.empty(1 << 40, device="cuda")
    except torch.OutOfMemoryError as error:
        refusal = str(error)
    assert recording is not None
    refused = recording.snapshot[0].refusals["size_bytes"].tolist()
    return told(recording) | {"refusal": refusal, "refused": refused}


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
                recording.stop()
                os._exit(len(recording.snapshot.devices))
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        thread.join()
    return {"codes": codes, "text": repr(recording)}


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
