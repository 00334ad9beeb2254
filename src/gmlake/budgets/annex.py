"""What the budgets add to gmlake: a plugin for pytest, and options of `gmlake forecast`."""

from __future__ import annotations

from typing import Final

from gmlake.annexes import Annex

ANNEX: Final = Annex(
    hooks={
        "forecast": "gmlake.budgets.scripts:Budget",
        "pytest": "gmlake.budgets.plugin:OPTIONS",
    },
)
