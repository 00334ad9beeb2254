"""Forecasts of vLLM's servers: models of several kinds, on several GPUs, alone and as two ranks.

    PYTHONPATH=benchmarks python benchmarks/forecast/servers.py [--device NAME] [--again]

This Python has vLLM and gmlake. results/servers.json has the models, and where the figures of their
config.json are from; what has no row is run, and a row is kept as soon as it is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import machine

DEVICES = ("h100-80gb", "a100-80gb", "l40s")
CONTEXTS = (8192, 32768)
KEPT = ("blocks", "tokens", "concurrency", "weights_bytes", "activation_bytes", "refused")


def forecast(model: dict[str, Any], device: str, ranks: int) -> dict[str, Any]:
    """Return what a server of the longer context holds, or why nothing is known."""
    config = model["config"]
    longest = min(CONTEXTS[-1], int(config.get("max_position_embeddings", CONTEXTS[-1])))
    ours = ("--on", device, "--context", str(min(CONTEXTS[0], longest)), "--json")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"config.json": config, **model.get("files", {})}.items():
            Path(folder, name).write_text(json.dumps(text), encoding="utf-8")
        theirs = ("--max-model-len", str(longest), "--tensor-parallel-size", str(ranks))
        words = ["vllm", "serve", folder, *theirs, *model.get("options", ())]
        command = ["-m", "gmlake", "forecast", *ours, "--", *words]
        done = subprocess.run(  # noqa: S603 (our own)
            [sys.executable, *command], capture_output=True, text=True, check=False
        )
    if not done.stdout:
        return {"stopped": done.stderr.partition(" It printed last")[0].strip()}
    figures = json.loads(done.stdout)["figures"]
    return {name: figures[name] for name in KEPT}


def main() -> None:
    """Run what is missing, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", action="append", help="one of the GPUs (may be repeated)")
    parser.add_argument("--again", action="store_true", help="forget the rows that are there")
    options = parser.parse_args()
    path = machine.RESULTS / "servers.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    rows: dict[str, Any] = {} if options.again else known["rows"]
    for ranks, device, model in product((1, 2), options.device or DEVICES, known["models"]):
        key = f"{device}, {ranks} of {model}"
        if key not in rows:
            rows[key] = forecast(known["models"][model], device, ranks)
            figures = {"models": known["models"], "rows": rows}
            print(key, machine.write("servers", figures, gpu="none: the stand-in GPU"))


if __name__ == "__main__":
    main()
