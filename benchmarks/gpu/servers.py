"""What a server of vLLM holds on a GPU, beside the forecast of the same program.

    ENGINES=FOLDER PYTHONPATH=benchmarks python -m gpu.servers            on the GPU
    PYTHONPATH=benchmarks python -m gpu.servers --foresee h200            without one

Each writes its part of results/gpu_servers.json, which has the models. Weights are random, there
are no graphs, and the allocator is PyTorch's. FOLDER is that of gpu.engines.
"""

# vLLM may be absent where the types are checked.
# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine
from gpu.engines import variables

_CONTEXT = 8192
_FORESEEN = ("blocks", "weights_bytes", "activation_bytes", "in_use_bytes", "reserved_bytes")
_RESULT = machine.RESULTS / "gpu_servers.json"


def boot(folder: str) -> dict[str, Any]:
    """Boot the model of that folder; return what the engine has of its device."""
    import torch
    from vllm import LLM, __version__

    words = {"load_format": "dummy", "skip_tokenizer_init": True, "disable_log_stats": True}
    engine = LLM(folder, max_model_len=_CONTEXT, enforce_eager=True, **words)
    torch.cuda.synchronize()
    core = engine.llm_engine.engine_core.engine_core
    worker = core.model_executor.driver_worker.worker
    return {
        "blocks": engine.llm_engine.vllm_config.cache_config.num_gpu_blocks,
        "weights_bytes": int(worker.model_runner.model_memory_usage),
        "activation_bytes": int(worker.peak_activation_memory),
        "in_use_bytes": machine.used_bytes(),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "vllm": __version__},
    }


def ask(folder: str, foresee: str) -> dict[str, Any]:
    """Return what a process of its own told, or `failed`."""
    seen = variables("default")
    program = [str(Path(__file__)), "--one", folder]
    if not foresee:
        return machine.told_by([sys.executable, *program], env=seen, seconds=400)
    command = [
        sys.executable,
        "-m",
        "gmlake",
        "forecast",
        "--on",
        foresee,
        "--json",
        "--",
        *program,
    ]
    done = subprocess.run(command, env=seen, capture_output=True, text=True, check=False)  # noqa: S603
    if not done.stdout:
        return {"failed": done.stderr.strip().partition("\n")[0]}
    figures = json.loads(done.stdout)["figures"]
    return {name: figures[name] for name in _FORESEEN}


def compare(models: dict[str, Any]) -> None:
    """Add how far each forecast is off to the models that have both, and print a row for each."""
    rows = []
    for name, model in models.items():
        is_, was = model.get("measured", {}), model.get("foreseen", {})
        both = [each for each in _FORESEEN if each in is_ and each in was]
        model["error_percent"] = {each: 100 * (was[each] / is_[each] - 1) for each in both}
        rows.append({"model": name, "measured": is_.get("blocks", ""), **model["error_percent"]})
    machine.show("forecast against a GPU: percent", rows)


def main() -> None:
    """Boot every model, and keep what they told."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--foresee", metavar="DEVICE", default="", help="forecast instead")
    parser.add_argument("--models", nargs="+", help="these alone")
    parser.add_argument("--one", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(boot(options.one)), flush=True)
        machine.end_process()
    known = json.loads(_RESULT.read_text(encoding="utf-8"))
    for name in options.models or known["models"]:
        model = known["models"][name]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(model["config"]), encoding="utf-8")
            model["foreseen" if options.foresee else "measured"] = ask(folder, options.foresee)
    compare(known["models"])
    runs = known.get("runs", {})
    gpu = "none: the stand-in GPU" if options.foresee else machine.gpu_and_driver()[0]
    runs["foreseen" if options.foresee else "measured"] = machine.describe(gpu)
    machine.write("gpu_servers", {**known, "runs": runs}, gpu=runs["measured"]["gpu"])


if __name__ == "__main__":
    main()
