"""What the papers of GMLake and STAlloc trained: models, strategies, ranks, batches.

A job is what rank 0 of it does. Needs no PyTorch.

GMLake: ASPLOS 2024. STAlloc: EuroSys 2026. What neither text gives is chosen here: GMLake's
batches, but the one of its figure 14, and its rank of the adapters; STAlloc's division among
devices, but that of its table 1, its lengths of sequences, its micro-batches in a step, and the
batch of the Qwen2.5 models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder.

    kind: "opt", "llama", "neox", "gpt2", "qwen". pairs: heads of keys and values. inner: width of
    the feed-forward part. longest: tokens of a sequence. experts, chosen, expert_inner: of a
    mixture of experts, beside a part of width `inner` that sees every token; 0: none.
    """

    kind: str
    layers: int
    width: int
    heads: int
    pairs: int
    inner: int
    vocab: int
    longest: int
    experts: int = 0
    chosen: int = 0
    expert_inner: int = 0

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    def tiny(self) -> Shape:
        """Return one of the same kind that takes next to nothing."""
        return replace(
            self,
            layers=8,
            width=128,
            heads=8,
            pairs=max(2, 8 * self.pairs // self.heads),
            inner=256,
            vocab=1024,
            longest=64,
            experts=self.experts and 8,
            chosen=self.experts and 2,
            expert_inner=self.experts and 64,
        )


@dataclass(frozen=True)
class Job:
    """A training.

    figure: of the paper. strategy: letters; GMLake: L adapters, R recomputation, O optimizer on
    the host, N none; STAlloc: R, V virtual pipeline, Z distributed optimizer, O, N none. replicas:
    ranks that share the data and, under ZeRO, the states. tensor, stages: ranks that a layer and
    the layers are divided among. micro_batches: in a step. is_searched: its largest batch is looked
    for, in steps of `grain`.
    """

    name: str
    paper: str
    figure: str
    model: str
    strategy: str
    batch: int
    replicas: int
    tensor: int = 1
    stages: int = 1
    micro_batches: int = 1
    steps: int = 6
    is_searched: bool = False
    grain: int = 1

    @property
    def shape(self) -> Shape:
        """Of the model."""
        return SHAPES[self.model]

    @property
    def ranks(self) -> int:
        """Of the whole training."""
        return self.replicas * self.tensor * self.stages

    @property
    def device(self) -> str:
        """Memory of the paper's devices: A100 or A800 of 80 GB, H200 of 141 GB."""
        return "141GiB" if self.model.startswith("qwen2.5") else "80GiB"

    @property
    def chunks(self) -> int:
        """Parts of the model that a stage has."""
        return 2 if "V" in self.strategy else 1


SHAPES = {
    "opt-13b": Shape("opt", 40, 5120, 40, 40, 20480, 50272, 512),
    "vicuna-13b": Shape("llama", 40, 5120, 40, 40, 13824, 32000, 512),
    "gpt-neox-20b": Shape("neox", 44, 6144, 64, 64, 24576, 50432, 512),
    "gpt2-345m": Shape("gpt2", 24, 1024, 16, 16, 4096, 50304, 1024),
    "llama2-7b": Shape("llama", 32, 4096, 32, 32, 11008, 32000, 4096),
    "qwen2.5-7b": Shape("qwen", 28, 3584, 28, 4, 18944, 152064, 4096),
    "qwen2.5-14b": Shape("qwen", 48, 5120, 40, 8, 13824, 152064, 4096),
    "qwen2.5-32b": Shape("qwen", 64, 5120, 40, 8, 27648, 152064, 4096),
    "qwen2.5-72b": Shape("qwen", 80, 8192, 64, 8, 29568, 152064, 4096),
    "qwen1.5-moe": Shape("qwen", 24, 2048, 16, 16, 5632, 151936, 1024, 60, 4, 1408),
}

_RANKS = 4
"""Of GMLake's jobs, but of those that compare numbers of ranks."""
_ADAPTED = 32
"""The batch of GMLake's jobs that train adapters on different numbers of ranks."""
_EDGE = 72
"""The batch at which GMLake's figure 14 has PyTorch run out of memory."""


def _tuning() -> list[Job]:
    jobs = []
    models = ("opt-13b", "vicuna-13b", "gpt-neox-20b")
    for model in models:
        for strategy in ("N", "R", "LR", "RO", "LRO"):
            name = f"{model}-{strategy}"
            jobs.append(Job(name, "gmlake", "10", model, strategy, 4, _RANKS))
        for ranks in (1, 2, 4, 8, 16):
            name = f"{model}-LR-{ranks}-ranks"
            searched = ranks == _RANKS
            job = Job(name, "gmlake", "11", model, "LR", _ADAPTED, ranks, is_searched=searched)
            jobs.append(replace(job, grain=4))
        jobs += [
            Job(f"{model}-LR-batch-{batch}", "gmlake", "13", model, "LR", batch, _RANKS)
            for batch in (8, 16, 64, _EDGE)
        ]
    return jobs


def _combined() -> list[Job]:
    batches = {"gpt2-345m": 128, "llama2-7b": 4, "qwen1.5-moe": 8}
    return [
        Job(
            f"{model}-{strategy}",
            "stalloc",
            "8",
            model,
            strategy,
            batch,
            2,
            tensor=1 if model == "qwen1.5-moe" else 2,
            stages=4 if model == "qwen1.5-moe" else 2,
            micro_batches=8,
            is_searched=strategy in ("N", "R", "V"),
            grain=4 if model == "gpt2-345m" else 1,
        )
        for model, batch in batches.items()
        for strategy in ("N", "R", "V", "VR", "ZR", "ZOR")
    ]


def _scaled() -> list[Job]:
    ranks = {"qwen2.5-7b": 1, "qwen2.5-14b": 2, "qwen2.5-32b": 4, "qwen2.5-72b": 8}
    jobs = []
    for model, tensor in ranks.items():
        plain = Job(
            f"{model}-R",
            "stalloc",
            "9b",
            model,
            "R",
            4,
            4,
            tensor=tensor,
            stages=2,
            micro_batches=8,
            is_searched=True,
        )
        jobs += [plain, replace(plain, name=f"{model}-V", figure="9c", strategy="V", batch=2)]
    original = jobs[3]
    jobs += [
        replace(original, name="qwen2.5-14b-N", figure="table 1", strategy="N"),
        replace(original, name="qwen2.5-14b-V-tensor-4", figure="table 1", tensor=4, replicas=2),
    ]
    return jobs


def _batches() -> list[Job]:
    plain = next(job for job in _combined() if job.name == "llama2-7b-R")
    return [
        replace(
            plain, name=f"llama2-7b-R-batch-{batch}", figure="10", batch=batch, is_searched=False
        )
        for batch in (1, 2, 8, 16, 32, 64)
    ]


JOBS = {job.name: job for job in (*_tuning(), *_combined(), *_scaled(), *_batches())}
