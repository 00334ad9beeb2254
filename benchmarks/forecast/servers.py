"""Forecasts of vLLM's servers: models of several kinds, on several GPUs, alone and as two ranks.

    PYTHONPATH=benchmarks python benchmarks/forecast/servers.py

This Python has vLLM and gmlake. results/servers.json has the models, and where the figures of their
config.json are from, or for some where it is; what has no row is run, and a row is kept as soon as
it is there. So is what public logs say, by the release of vLLM that is named beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import machine

DEVICES = ("h100-80gb", "a100-80gb", "l40s")
CONTEXTS = (8192, 32768)
KEPT = ("blocks", "tokens", "concurrency", "weights_bytes", "activation_bytes", "refused")


def forecast(model: dict[str, Any], device: str, ranks: int) -> dict[str, Any]:
    """Return what a server of the longer context holds, or why nothing is known."""
    config = model.get("config")
    if config is None:
        return {"stopped": "its configuration is not kept here; `source` says where it is"}
    longest = min(CONTEXTS[-1], int(config.get("max_position_embeddings", CONTEXTS[-1])))
    ours = ("--on", device, "--context", str(min(CONTEXTS[0], longest)), "--json")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"config.json": config, **model.get("files", {})}.items():
            Path(folder, name).write_text(json.dumps(text), encoding="utf-8")
        theirs = ("--max-model-len", str(longest), "--tensor-parallel-size", str(ranks))
        words = ["vllm", "serve", folder, *theirs, *model.get("options", ())]
        command = [sys.executable, "-m", "gmlake", "forecast", *ours, "--", *words]
        variables = {**os.environ, **model.get("variables", {})}
        done = subprocess.run(  # noqa: S603 (our own)
            command, env=variables, capture_output=True, text=True, check=False
        )
    if not done.stdout:
        return {"stopped": done.stderr.partition(" It printed last")[0].strip()}
    figures = json.loads(done.stdout)["figures"]
    again = {row[0]: row[2] for row in figures["others"]}["started again, compiled before"]
    return {name: figures[name] for name in KEPT} | {"again_tokens": again}


def main() -> None:
    """Run what is missing, and keep it."""
    known = json.loads((machine.RESULTS / "servers.json").read_text(encoding="utf-8"))
    del known["run"]
    wanted = [
        (known["models"][model], device, ranks, known["rows"], f"{device}, {ranks} of {model}")
        for ranks, device, model in product((1, 2), DEVICES, known["models"])
    ]
    # What public logs say of a server.
    for one in [each for each in known["receipts"] if each["by"] == version("vllm")]:
        asked = {"options": one["options"].split(), "variables": one.get("variables", {})}
        model = known["receipt_models"][one["model"]] | asked
        wanted.append((model, one["device"], 1, one, "forecast"))
    for *server, kept, name in wanted:
        if name not in kept:
            kept[name] = forecast(*server)
            print(name, machine.write("servers", known, gpu="none: the stand-in GPU"))


if __name__ == "__main__":
    main()
