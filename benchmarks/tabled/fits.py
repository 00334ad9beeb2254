"""Tables of fits.py: the largest batch as predicted, and as it ran."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, caption, table


def fits(result: dict[str, Any]) -> str:
    """Return a row for each program: predicted and ran, by policy."""
    found = result["programs"]
    policies = list(next(iter(found.values()))["ways"])
    rows = [
        [
            f"`{name}`",
            f"{told['memory_bytes'] // GIB} GiB",
            *(
                f"{told['ways'][each]['foretold']}, {told['ways'][each]['ran']}"
                for each in policies
            ),
        ]
        for name, told in found.items()
    ]
    first, *others = policies
    headings = [f"`{first}`: predicted, ran :", *(f"`{each}` :" for each in others)]
    about = "a run comes to the same each time"
    return table(" | ".join(["program", "memory", *headings]), rows, caption(result["run"], about))
