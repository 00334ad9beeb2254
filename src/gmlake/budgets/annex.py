"""What the budgets add to gmlake: a plugin for pytest."""

from __future__ import annotations

from typing import Final

from gmlake.annexes import Annex

ANNEX: Final = Annex(hooks={"pytest": "gmlake.budgets.plugin:OPTIONS"})
