"""Trainings by other people's programs, unmodified, under each allocator on the stand-in GPU.

python benchmarks/others/measure.py --libraries FOLDER [--write] [PROGRAM ...]

FOLDER has the programs: deepspeed, megatron-core, torchtitan and trl with what they need, of which
PyTorch and transformers may lie in the Python of the stand-in. Kernels compute nothing there; what
is asked of memory is what the programs ask. Each runs as one rank: torchtitan as one of eight,
whose communication is PyTorch's "fake", the others alone.
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
    "megatron_gpt": "megatron-core",
    "torchtitan": "torchtitan",
    "trl_sft": "trl",
}
ALLOCATORS = {"default": "", "expandable": "expandable_segments:True", "gmlake": ""}
_CAPACITY = "80GiB"
_LONGEST_SECONDS = 600
_FIRST_RANK = {
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


def words_of(program: str, folder: Path) -> tuple[list[str], int]:
    """Return what starts a program, and how many ranks it is told of; 0: it is told of none."""
    if program != "torchtitan":
        return [str(HERE / f"{program}.py")], int(program != "trl_sft")
    write_tokenizer(folder / "tokenizer")
    (folder / "texts").mkdir()
    write_texts(folder / "texts" / "texts.json", 400)
    job = folder / "job.toml"
    job.write_text(_JOB.format(folder=folder, steps=STEPS), encoding="utf-8")
    return ["-m", "torchtitan.train", "--job.config_file", str(job)], 8


def ask(program: str, allocator: str, libraries: Path) -> dict[str, Any]:
    """Return the peaks of a run, or `failed`."""
    with tempfile.TemporaryDirectory() as folder:
        words, ranks = words_of(program, Path(folder))
        started = ["-m", "gmlake", "run"] if allocator == "gmlake" else []
        command = [sys.executable, "-m", "tests.standin", "--capacity", _CAPACITY, *started]
        paths = (str(libraries), str(HERE.parent), os.environ.get("PYTHONPATH", ""))
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator],
            "HF_HUB_OFFLINE": "1",
        }
        if ranks:
            variables |= _FIRST_RANK | {"WORLD_SIZE": str(ranks), "NGPU": str(ranks)}
        return machine.told_by(
            [*command, str(HERE / "peaks.py"), *words],
            env=os.environ | variables,
            cwd=machine.ROOT,
            seconds=_LONGEST_SECONDS,
        )


def versions(libraries: Path) -> dict[str, str]:
    """Return the version of each program."""
    found = {each.name: each.version for each in distributions(path=[str(libraries)])}
    return {program: found.get(package, "none") for program, package in PACKAGES.items()}


def main() -> int:
    """Run, print, and keep it with --write; 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PACKAGES))
    parser.add_argument("--libraries", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="keep it as results/others.json")
    options = parser.parse_args()
    chosen = options.programs or list(PACKAGES)
    if unknown := sorted(set(chosen) - set(PACKAGES)):
        parser.error(f"no program is called '{unknown[0]}'; there are {', '.join(PACKAGES)}")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    table = Table("program", *ALLOCATORS, title="reserved GiB, and how much of it was live")
    for program in chosen:
        found[program] = {way: ask(program, way, options.libraries) for way in ALLOCATORS}
        cells = [
            told.get("failed")
            or f"{told['reserved_bytes'] / 2**30:.2f}, "
            f"{told['live_bytes'] / told['reserved_bytes']:.3f}"
            for told in found[program].values()
        ]
        table.add_row(program, *cells)
    Console().print(table)
    if options.write:
        figures = {"versions": versions(options.libraries), "programs": found}
        print(machine.write("others", figures, gpu="none: the stand-in GPU"))
    return int(any("failed" in told for ways in found.values() for told in ways.values()))


if __name__ == "__main__":
    sys.exit(main())
