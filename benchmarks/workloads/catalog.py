"""Every workload by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from workloads import gpt, lora, storm, streams, vision
from workloads.session import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from workloads.session import Session


def _training(size: str, batch: int) -> dict[str, Workload]:
    name = size if size == "1.3b" else f"gpt2-{size}"
    what = f"train GPT {size}, {batch} sequences"
    return {
        name: Workload(partial(gpt.train, size=size, batch=batch), what),
        f"{name}-checkpoint": Workload(
            partial(gpt.train, size=size, batch=2 * batch, has_checkpoints=True),
            f"train GPT {size}, {2 * batch} sequences, activations computed twice",
        ),
    }


def _plain(run: Callable[..., None], **options: object) -> Callable[[Session], None]:
    return partial(run, **options)


WORKLOADS: dict[str, Workload] = {
    **_training("small", 8),
    **_training("medium", 8),
    **_training("1.3b", 4),
    "varying": Workload(
        _plain(gpt.train_varying, size="medium", batch=8, has_checkpoints=False),
        "GPT medium, another sequence length in each step",
    ),
    "varying-checkpoint": Workload(
        _plain(gpt.train_varying, size="medium", batch=16, has_checkpoints=True),
        "the same with activations computed twice",
    ),
    "accumulation": Workload(
        _plain(gpt.train_accumulating, size="small", batch=4, parts=4),
        "GPT small, four batches for each update",
    ),
    "evaluation": Workload(
        _plain(gpt.train_and_evaluate, size="small", batch=4),
        "GPT small, training and evaluation in turn, empty_cache between them",
    ),
    "out-of-memory": Workload(
        _plain(gpt.train_until_out_of_memory, size="small", batch=2),
        "GPT small, a batch that doubles until memory runs out",
        limit_gib={"full": 16, "short": 8},
    ),
    "tight": Workload(
        _plain(gpt.train_in_tight_memory, size="small", batch=8),
        "GPT small, sequence lengths that vary where little memory is left",
        limit_gib={"full": 10, "short": 5},
    ),
    "decode": Workload(
        _plain(gpt.decode, size="medium", batch=16),
        "GPT medium generates text, its cache of keys and values growing token by token",
    ),
    "prefetch": Workload(
        _plain(streams.train_prefetching, batch=64),
        "ResNet-34, a second stream copies and prepares the next pictures",
    ),
    "experts": Workload(
        _plain(streams.train_experts, size="medium", batch=8),
        "two branches on two streams, forward and backward",
    ),
    "offload": Workload(
        _plain(streams.train_offloading, size="small", batch=4),
        "GPT small, a second stream moves activations to the host and back",
    ),
    "convolutions": Workload(
        _plain(vision.train_convolutions, batch=64),
        "ResNet-34 with cudnn.benchmark, pictures of two sizes",
    ),
    "lora": Workload(
        _plain(lora.tune, batch=4),
        "Llama of 1.2 billion parameters, LoRA by peft, varying lengths, checkpointing",
    ),
    "storm": Workload(
        _plain(storm.run, rounds=3, seed=0),
        "no model: random sizes on three streams, empty_cache and lack of memory in between",
        limit_gib={"full": 4, "short": 2},
    ),
}
