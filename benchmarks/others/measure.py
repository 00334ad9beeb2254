"""Other people's programs, unmodified, under each allocator on the stand-in GPU.

python benchmarks/others/measure.py --libraries FOLDER [--libraries FOLDER] [--write] [PROGRAM ...]

The folders have the programs with what they need, of which PyTorch and transformers may lie in the
Python of the stand-in; a program sees the first folder that has its package (PACKAGES below), for
their needs contradict each other. Kernels compute nothing there; what is asked of memory is what
the programs ask. Each training runs as one rank: torchtitan as one of eight, whose communication is
PyTorch's "fake", the others alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import machine  # noqa: E402
from others.made import STEPS, write_texts, write_tokenizer  # noqa: E402

PACKAGES = {
    "deepspeed_zero3": "deepspeed",
    "diffusers_offloaded": "diffusers",
    "megatron_gpt": "megatron-core",
    "torchtitan": "torchtitan",
    "sglang_releases": "sglang",
    "trl_sft": "trl",
    "vllm_sleeps": "vllm",
}
ALLOCATORS = {"default": "", "expandable": "expandable_segments:True", "gmlake": ""}
_CAPACITY = "80GiB"
_LONGEST_SECONDS = 600
_RANKS = {"deepspeed_zero3": 1, "megatron_gpt": 1, "torchtitan": 8}
FIRST_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29517",
}
_JOB = """
[job]
dump_folder = "{folder}"
[model]
name = "llama3"
flavor = "8B"
hf_assets_path = "{folder}/tokenizer"
[optimizer]
name = "AdamW"
[training]
local_batch_size = 2
seq_len = 2048
steps = {steps}
dataset = "c4_test"
dataset_path = "{folder}/texts"
[activation_checkpoint]
mode = "selective"
[comm]
mode = "fake_backend"
"""


def words_of(program: str, folder: Path) -> list[str]:
    """Return what starts a program."""
    if program != "torchtitan":
        return [str(HERE / f"{program}.py")]
    write_tokenizer(folder / "tokenizer")
    (folder / "texts").mkdir()
    write_texts(folder / "texts" / "texts.json", 400)
    job = folder / "job.toml"
    job.write_text(_JOB.format(folder=folder, steps=STEPS), encoding="utf-8")
    return ["-m", "torchtitan.train", "--job.config_file", str(job)]


def ask(program: str, allocator: str, libraries: Path) -> dict[str, Any]:
    """Return the peaks of a run and what it told, or `failed`."""
    with tempfile.TemporaryDirectory() as folder:
        words = words_of(program, Path(folder))
        started = ["-m", "gmlake", "run"] if allocator == "gmlake" else []
        command = [sys.executable, "-m", "tests.standin", "--capacity", _CAPACITY, *started]
        paths = (str(libraries), str(HERE.parent), os.environ.get("PYTHONPATH", ""))
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator],
            "HF_HUB_OFFLINE": "1",
        }
        if ranks := _RANKS.get(program):
            variables |= FIRST_RANK | {"WORLD_SIZE": str(ranks), "NGPU": str(ranks)}
        told = machine.told_by(
            [*command, str(HERE / "peaks.py"), *words],
            env=os.environ | variables,
            cwd=machine.ROOT,
            seconds=_LONGEST_SECONDS,
        )
    # Nothing was computed, by no device.
    return {name: each for name, each in told.items() if name not in ("losses", "device")}


def found_in(folders: list[Path], chosen: list[str]) -> dict[str, tuple[Path, str]]:
    """Return the first folder that has the package of each program, and the version there."""
    found: dict[str, tuple[Path, str]] = {}
    for folder in folders:
        there = {each.name: each.version for each in distributions(path=[str(folder)])}
        for program in chosen:
            if PACKAGES[program] in there:
                found.setdefault(program, (folder, there[PACKAGES[program]]))
    return found


def cell_of(told: dict[str, Any]) -> str:
    """Return what a run reserved, in GiB, and how much of it was live; or why it failed."""
    return (
        told.get("failed")
        or f"{told['reserved_bytes'] / 2**30:.2f}, "
        f"{told['live_bytes'] / told['reserved_bytes']:.3f}"
    )


def main() -> int:
    """Run, print, and keep it with --write; 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PACKAGES))
    parser.add_argument("--libraries", type=Path, required=True, action="append", metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="keep it as results/others.json")
    options = parser.parse_args()
    chosen = options.programs or list(PACKAGES)
    if unknown := sorted(set(chosen) - set(PACKAGES)):
        parser.error(f"no program is called '{unknown[0]}'; there are {', '.join(PACKAGES)}")
    places = found_in(options.libraries, chosen)
    if absent := [PACKAGES[program] for program in chosen if program not in places]:
        parser.error(f"no folder has {', '.join(absent)}")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    table = Table("program", *ALLOCATORS, title="reserved GiB, and how much of it was live")
    for program in chosen:
        found[program] = {way: ask(program, way, places[program][0]) for way in ALLOCATORS}
        table.add_row(program, *map(cell_of, found[program].values()))
    Console().print(table)
    if options.write:
        versions = {program: version for program, (_, version) in places.items()}
        figures = {"versions": versions, "programs": found}
        print(machine.write("others", figures, gpu="none: the stand-in GPU"))
    return int(any("failed" in told for ways in found.values() for told in ways.values()))


if __name__ == "__main__":
    sys.exit(main())
