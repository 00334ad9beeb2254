"""The names, commands and hooks that the stand-in GPU adds to gmlake."""

from __future__ import annotations

from typing import Final

from gmlake.annexes import Annex, Command

ANNEX: Final = Annex(
    names={"gmlake.standin.forecasts": "forecast"},
    commands={
        "forecast": Command(
            "Run a training script without a GPU, and foresee what memory it needs on one.",
            "gmlake.standin.forecast_command",
        ),
    },
    hooks={
        "activation": "gmlake.standin.inside:activate",
        "sglang": "gmlake.standin.engine_sglang:watch",
        "run": "gmlake.standin.run_option:RUN",
        "vllm": "gmlake.standin.engines:watch",
    },
)
