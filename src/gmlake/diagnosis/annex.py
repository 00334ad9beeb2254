"""The names, commands and hooks that the diagnosis adds to gmlake."""

from __future__ import annotations

from typing import Final

from gmlake.annexes import Annex, Command

ANNEX: Final = Annex(
    names={
        "gmlake.diagnosis": "find_inefficiencies",
        "gmlake.diagnosis.operators": "diagnose",
    },
    commands={
        "diagnose": Command(
            "Find patterns of memory inefficiency in traces of objects, each with the line to "
            "change.",
            "gmlake.diagnosis.diagnose_command",
        ),
    },
)
