"""vLLM itself under gmlake and under PyTorch's allocators: serving, sleep, a loop with a trainer.

    ENGINES=FOLDER PYTHONPATH=benchmarks python -m gpu.engines [--write] [--works serve-eager,loop]

FOLDER has vLLM and what it needs beside PyTorch, as pip installs it with --target. Weights are
random, the same for all, and so are prompts and the trainer's words; tokens and losses are compared
by their hash. Each run has a process of its own, the allocators by turns: every other round in the
opposite order.

    serve-eager, serve-graphs   8B parameters answer 100 prompts of 100 to 3,000 tokens
    sleep                       the same model sleeps and wakes, level 1 and level 2
    loop                        1B parameters: generate, sleep, train, new weights, wake, 30 times
    beside                      1B parameters answer prompts for a given time, while another process
                                takes memory and leaves it by turns. Of the device all have --room:
                                with gmlake the cache gives way (GMLAKE_VLLM_CACHE=1), without it
                                the cache leaves room for the other process all the time
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls
# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gmlake
import machine
from gpu.settings import environment

if TYPE_CHECKING:
    from collections.abc import Callable

ALLOCATORS = ("default", "expandable", "gmlake")
_ENGINE = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_HOST_IP": "127.0.0.1",
    "TOKENIZERS_PARALLELISM": "false",
}
_SIZES: dict[str, dict[str, int]] = {
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
    "tiny": {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2},
}
_WORDS = 128256
_LONGEST = 4096
_GIB = 1 << 30
_CONTEXTS = 2  # GiB: what CUDA takes for two processes


# ---- the engine, in the process of a run ---------------------------------------------------------


def config_of(size: str) -> Any:  # noqa: ANN401 (transformers')
    """Return the configuration of a Llama of that size, with heads of 128."""
    from transformers import LlamaConfig

    shape = _SIZES[size]
    return LlamaConfig(
        **shape,
        vocab_size=_WORDS,
        num_attention_heads=shape["hidden_size"] // 128,
        num_key_value_heads=min(8, shape["hidden_size"] // 128),
        head_dim=128,
        max_position_embeddings=2 * _LONGEST,
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
        tie_word_embeddings=False,
    )


def boot(size: str, **more: Any) -> Any:  # noqa: ANN401 (vLLM's)
    """Return vLLM with a model of that size, whose weights are drawn anew."""
    from vllm import LLM

    with tempfile.TemporaryDirectory() as folder:
        config_of(size).save_pretrained(folder)
        engine = LLM(
            folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            max_model_len=_LONGEST,
            disable_log_stats=True,
            **{"enforce_eager": True, **more},
        )
    engine.apply_model(draw_weights)
    return engine


def draw_weights(model: Any) -> None:  # noqa: ANN401 (vLLM's)
    """Give a model the same random weights at each call: the dummy ones of vLLM hide faults."""
    import torch

    drawn = torch.Generator(device="cuda").manual_seed(1234)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() < 2:  # noqa: PLR2004 (a norm's scale)
                weight.fill_(1.0)
                continue
            for part in weight.split(max(1, (1 << 26) // weight[0].numel())):
                part.copy_(torch.empty(part.shape, device="cuda").normal_(0, 0.02, generator=drawn))


def drawn(seed: int, count: int, most: int, longest: int = 3000) -> list[tuple[Any, Any]]:
    """Return `count` prompts, and how each is to be answered."""
    from vllm import SamplingParams

    chance = random.Random(seed)  # noqa: S311 (no secret)
    words = [
        [chance.randrange(_WORDS) for _ in range(chance.randint(min(100, longest), longest))]
        for _ in range(count)
    ]
    return [
        (
            {"prompt_token_ids": each},
            SamplingParams(
                temperature=0.0,
                max_tokens=chance.randint(most // 8, most),
                ignore_eos=True,
                detokenize=False,
            ),
        )
        for each in words
    ]


def answers(engine: Any, seed: int, count: int, most: int, longest: int = 3000) -> list[list[int]]:  # noqa: ANN401
    """Return prompt and answer of `count` drawn prompts, as token numbers."""
    words, wanted = map(list, zip(*drawn(seed, count, most, longest), strict=True))
    engine.reset_prefix_cache()
    done = engine.generate(words, wanted, use_tqdm=False)
    return [
        [*each["prompt_token_ids"], *map(int, one.outputs[0].token_ids)]
        for each, one in zip(words, done, strict=True)
    ]


def hashed(told: object) -> str:
    """Return a short name of what JSON says."""
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that work takes, the device's among them, and what it returns."""
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    made = work()
    torch.cuda.synchronize()
    return time.perf_counter() - began, made


# ---- works ---------------------------------------------------------------------------------------


def serve(options: argparse.Namespace, *, graphs: bool) -> dict[str, Any]:
    """Answer the same prompts some times."""
    more: dict[str, Any] = {"enable_prefix_caching": False}
    if graphs:
        how = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
        more |= {"enforce_eager": False, "compilation_config": how}
    seconds, engine = timed(lambda: boot(options.sizes[0], **more))
    answers(engine, 1, 4, options.most)
    told: dict[str, Any] = {"boot_seconds": seconds, "seconds": []}
    for _ in range(options.times):
        taken, texts = timed(lambda: answers(engine, 0, options.count, options.most))
        told["seconds"].append(taken)
        told["answers"] = hashed(texts)
        told["tokens"] = sum(map(len, texts))
    cache = engine.llm_engine.vllm_config.cache_config
    return {**told, "kv_blocks": cache.num_gpu_blocks}


def sleep(options: argparse.Namespace) -> dict[str, Any]:
    """Sleep and wake at both levels; at level 2 the weights first, then the cache."""
    engine = boot(options.sizes[0], enable_sleep_mode=True)
    ask = lambda: hashed(answers(engine, 0, 24, 96, 1500))  # noqa: E731
    expected = ask()
    moves: dict[str, Callable[[], Any]] = {
        "sleep_1": lambda: engine.sleep(level=1),
        "wake_1": engine.wake_up,
        "sleep_2": lambda: engine.sleep(level=2),
        "wake_2_weights": lambda: engine.wake_up(tags=["weights"]),
        "wake_2_cache": lambda: engine.wake_up(tags=["kv_cache"]),
    }
    told: dict[str, list[float]] = {name: [] for name in moves}
    same, freed_bytes = True, 0
    for _ in range(options.times):
        for name, move in moves.items():
            gc.collect()
            used = machine.used_bytes()
            told[name].append(timed(move)[0])
            if name == "sleep_2":
                freed_bytes = used - machine.used_bytes()
            if name == "wake_2_weights":
                engine.apply_model(draw_weights)
            if name in ("wake_1", "wake_2_cache"):
                same = same and ask() == expected
    return {**told, "freed_bytes": freed_bytes, "answers": expected, "has_same_answers": same}


class Trainer:
    """Trains the model whose weights the engine gets."""

    def __init__(self, size: str) -> None:
        """Make the model and its optimizer."""
        import torch
        from transformers import LlamaForCausalLM

        torch.manual_seed(0)
        with torch.device("cuda"):
            self.model = LlamaForCausalLM(config_of(size)).to(torch.bfloat16)
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, foreach=False)

    def step(self, texts: list[list[int]]) -> str:
        """Train on texts, filled up to the longest; return the loss, exactly."""
        import torch

        longest = max(map(len, texts))
        words = torch.tensor([each + [0] * (longest - len(each)) for each in texts], device="cuda")
        torch.use_deterministic_algorithms(True)  # noqa: FBT003 (its own signature)
        loss = self.model(input_ids=words, labels=words, use_cache=False).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch.use_deterministic_algorithms(False)  # noqa: FBT003
        return float(loss.detach()).hex()


def loop(options: argparse.Namespace) -> dict[str, Any]:
    """Reinforcement learning's loop in one process; without gmlake, with empty_cache() by hand."""
    import torch

    engine = boot(options.sizes[1], enable_sleep_mode=True, gpu_memory_utilization=0.6)
    engine.sleep(level=2)
    trainer = Trainer(options.sizes[1])
    by_hand = torch.cuda.empty_cache if options.allocator != "gmlake" else bool
    told: dict[str, Any] = {"round_seconds": [], "used_bytes": []}
    losses: list[str] = []
    texts: list[list[list[int]]] = []

    def turn(number: int) -> None:
        by_hand()
        engine.wake_up(tags=["weights"])
        engine.apply_model(
            lambda model: model.load_weights(trainer.model.named_parameters()) and None
        )
        engine.wake_up(tags=["kv_cache"])
        said = answers(engine, number, 32, 256, 512)
        engine.sleep(level=2)
        texts.append(said)
        losses.extend(trainer.step(said[first : first + 16]) for first in (0, 16))

    for number in range(options.rounds):
        told["round_seconds"].append(timed(lambda: turn(number))[0])  # noqa: B023 (called at once)
        told["used_bytes"].append(machine.used_bytes())
    return {**told, "answers": hashed(texts), "losses": hashed(losses)}


def borrow(options: argparse.Namespace) -> dict[str, Any]:
    """Take memory and leave it by turns until the input ends, leaving --room of the device to all.

    It computes nothing meanwhile, so that the engine has the processors for itself both times.
    """
    import torch

    def is_over(seconds: float) -> bool:
        return bool(select.select([sys.stdin], [], [], seconds)[0])

    ballast = torch.empty(
        max(0, torch.cuda.mem_get_info()[0] - options.room * _GIB), dtype=torch.int8, device="cuda"
    )
    print("ready", flush=True)
    sys.stdin.readline()
    told: dict[str, Any] = {"take_seconds": [], "refused": 0, "same_bits": True}
    while not is_over(options.away):
        turn = len(told["take_seconds"])
        try:
            seconds, parts = timed(
                lambda: [
                    torch.full((_GIB // 4,), turn, dtype=torch.int32, device="cuda")  # noqa: B023
                    for _ in range(options.borrowed)
                ]
            )
        except torch.OutOfMemoryError:
            told["refused"] += 1
            continue
        told["take_seconds"].append(seconds)
        is_over(options.here)
        told["same_bits"] &= all(int(part.amin()) == int(part.amax()) == turn for part in parts)
        del parts
        torch.cuda.empty_cache()
    return {**told, "ballast_bytes": ballast.numel()}


def beside(options: argparse.Namespace) -> dict[str, Any]:
    """Answer prompts for --span seconds beside borrow()."""
    import torch

    other = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "gpu.engines", *sys.argv[1:], "--one", "borrow"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdin and other.stdout  # noqa: PT018, S101 (they are pipes)
    other.stdout.readline()
    room = options.room - _CONTEXTS - (0 if options.allocator == "gmlake" else options.borrowed)
    part = room * _GIB / torch.cuda.mem_get_info()[1]
    seconds, engine = timed(lambda: boot(options.sizes[1], gpu_memory_utilization=part))
    answers(engine, 1, 4, options.most)
    engine = engine.llm_engine
    for number, (words, wanted) in enumerate(drawn(0, 30 * options.count, options.most, 1500)):
        engine.add_request(str(number), words, wanted)
    pool = engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
    other.stdin.write("go\n")
    other.stdin.flush()
    texts: dict[str, str] = {}
    blocks: list[int] = []
    end = time.perf_counter() + options.span
    while time.perf_counter() < end:
        done = [one for one in engine.step() if one.finished]
        texts |= {one.request_id: hashed([*map(int, one.outputs[0].token_ids)]) for one in done}
        blocks.append(pool.num_gpu_blocks)
    told = json.loads(other.communicate("over\n")[0].splitlines()[-1])
    return {
        "boot_seconds": seconds,
        "answered": len(texts),
        "steps": len(blocks),
        "most_blocks": max(blocks),
        "least_blocks": min(blocks),
        **{name: told[name] for name in ("take_seconds", "refused", "same_bits")},
        "texts": texts,
    }


WORKS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "serve-eager": lambda options: serve(options, graphs=False),
    "serve-graphs": lambda options: serve(options, graphs=True),
    "sleep": sleep,
    "loop": loop,
    "beside": beside,
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Do one work in this process."""
    if options.allocator == "gmlake":
        gmlake.enable()
    import torch

    if options.one == "borrow":
        return borrow(options)
    told = WORKS[options.one](options)
    vllm = sys.modules["vllm"]
    return {
        **told,
        "peak_live_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "used_at_end_bytes": machine.used_bytes(),
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "vllm": vllm.__version__},
    }


# ---- who starts them -----------------------------------------------------------------------------


def variables(allocator: str, work: str = "") -> dict[str, str]:
    """Return what a process with the engine sees."""
    given = environment(allocator)
    if work == "beside":
        given["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        elastic = {"GMLAKE_VLLM_CACHE": "1", "GMLAKE_SHARE": "device"}
        given |= elastic if allocator == "gmlake" else {}
    paths = [given["PYTHONPATH"], os.environ.get("ENGINES", "")]
    return given | _ENGINE | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def ask_process(work: str, allocator: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own told, or `failed`."""
    words = [*sys.argv[1:], "--one", work, "--allocator", allocator]
    return machine.told_by(
        [sys.executable, "-m", "gpu.engines", *words],
        env=variables(allocator, work),
        cwd=machine.ROOT,
        seconds=options.seconds,
    )


def show(figures: dict[str, Any]) -> None:
    """Print a row for each run, with medians of what was repeated."""
    for work, runs in figures["works"].items():
        rows = [
            {"allocator": allocator}
            | {
                name: statistics.median(each) if isinstance(each, list) else each
                for name, each in told.items()
                if name not in ("versions", "device")
            }
            for allocator, rounds in runs.items()
            for told in rounds
        ]
        machine.show(work, rows)


def main() -> int:
    """Measure, print, and keep it; 1 where something failed or answers differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--works", default=",".join(WORKS), help="a,b of these (%(default)s)")
    parser.add_argument("--allocators", default=",".join(ALLOCATORS))
    parser.add_argument("--processes", type=int, default=1, help="of each kind (1)")
    parser.add_argument("--sizes", nargs=2, choices=_SIZES, default=["8b", "1b"])
    parser.add_argument("--count", type=int, default=100, help="prompts (100)")
    parser.add_argument("--most", type=int, default=512, help="tokens of an answer (512)")
    parser.add_argument("--times", type=int, default=3, help="in one process (3)")
    parser.add_argument("--rounds", type=int, default=30, help="of the loop (30)")
    parser.add_argument("--seconds", type=float, default=400, help="that a process may take")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_engines.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--room", type=int, default=40, help="beside: GiB of the device (40)")
    parser.add_argument("--borrowed", type=int, default=30, help="beside: GiB taken (30)")
    parser.add_argument("--away", type=float, default=15, help="beside: seconds without them (15)")
    parser.add_argument("--here", type=float, default=8, help="beside: seconds with them (8)")
    parser.add_argument("--span", type=float, default=46, help="beside: seconds in all (46)")
    parser.add_argument("--one", choices=[*WORKS, "borrow"], help=argparse.SUPPRESS)
    parser.add_argument("--allocator", choices=ALLOCATORS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(options)), flush=True)
        machine.end_process()
    names = options.allocators.split(",")
    works: dict[str, dict[str, list[dict[str, Any]]]] = {
        work: {name: [] for name in names} for work in options.works.split(",")
    }
    figures: dict[str, Any] = {"works": works}
    for work, runs in works.items():
        first: dict[str, str] = {}
        for number in range(options.processes):
            for name in names[:: -1 if number % 2 else 1]:
                told = ask_process(work, name, options)
                texts = told.pop("texts", {})  # of those that were answered in time
                first = first or texts
                if both := first.keys() & texts.keys():
                    told["answered_in_both"] = len(both)
                    told["same_answers"] = sum(first[each] == texts[each] for each in both)
                runs[name].append(told)
                print(work, name, json.dumps(told), flush=True)
                if options.write or options.output:  # what was measured is kept
                    gpu = machine.devices_of(one for rounds in runs.values() for one in rounds)
                    machine.write("gpu_engines", figures, path=options.output, gpu=gpu)
    show(figures)
    all_runs = [one for runs in works.values() for rounds in runs.values() for one in rounds]
    same = all(
        len({one.get("answers") for rounds in runs.values() for one in rounds}) == 1
        for runs in works.values()
    )
    return int(not same or any("failed" in one for one in all_runs))


if __name__ == "__main__":
    sys.exit(main())
