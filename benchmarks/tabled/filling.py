"""The table of gpu.filling: servers whose cache takes what is left, or is static."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, caption, marked, number, table, torch_of

_WAYS = {
    "filled": "takes what is left, `fill()`",
    "static": "fixed beforehand, by an estimate",
    "plain": "the same under PyTorch's default",
}


def servers(result: dict[str, Any]) -> str:
    """Return a row for each server."""
    rows = []
    for way, name in _WAYS.items():
        told = result["ways"][way]
        rows.append(
            [
                name,
                f"{told['served']:,} of {result['requests']:,}",
                f"{told['refused']}",
                marked(number(told["used"], 4), 1),
                marked(number(told["most_pages_bytes"], 2, GIB), 1),
                f"{told['preempted']}",
                f"{told['given']}",
                f"{told['steps']:,}",
                marked(number(told["seconds"], 1), 1),
                f"{len(told['differing'])}",
            ]
        )
    first = result["ways"]["filled"]
    memory = number(result["memory_bytes"], 1, GIB)
    return table(
        "cache | answered : | memory refused : | most of the device in use : "
        "| most GiB of keys and values : | requests begun anew : | pages given back : | steps : "
        "| s : | answers that differ :",
        rows,
        caption(
            result["run"],
            f"{memory} GiB of the device for each server; † one run",
            versions=torch_of(first["torch"]),
        ),
    )
