"""Tables of gpu.turns: steps that take turns under two allocators in one process."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tabled.compared import NAMES
from tabled.markdown import caption, marked, number, table, torch_of
from tabled.varying import PROGRAMS

_BASES = ("expandable", "default")
_PROGRAMS = {
    **PROGRAMS,
    "lora": "LoRA of twelve layers of Llama 1.1B",
    "moe": "half of a mixture of experts, random routing",
    "launch-bound": "Llama of 22 narrow layers, which launches bound",
}


def _ratio(ratio: dict[str, float] | None, processes: int) -> str:
    if ratio is None:
        return ""
    said = f"{ratio['ratio']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
    return marked(said, processes)


def turns(result: dict[str, Any]) -> str:
    """Return a row for each program: the ratio of its pairs of steps to each other allocator."""
    found = [told for told in result["comparisons"] if "failed" not in told]
    if different := [told["program"] for told in found if not told["has_same_losses"]]:
        raise ValueError(f"losses differ: {different}")
    many = Counter((told["program"], told["side"], told["base"]) for told in found)
    rows: dict[str, dict[str, list[str]]] = {}
    captions = []
    for told in (each for each in found if each["side"] == "gmlake"):
        processes = many[told["program"], "gmlake", told["base"]]
        rows.setdefault(told["program"], {})[told["base"]] = [
            _ratio(told["ratios"].get("wall"), processes),
            f"{told['pairs']}",
            number(told["driver_per_step"]["gmlake"]["ms"], 2),
        ]
        run = told.get("run") or result["run"]
        captions.append(caption(run, [processes], versions=torch_of(told["torch"])))
    groups = (f"{NAMES[base]}: time of a step | pairs : | driver, ms :" for base in _BASES)
    return table(
        " | ".join(["program", *groups]),
        [
            [_PROGRAMS[name], *(cell for base in _BASES for cell in by_base[base])]
            for name, by_base in rows.items()
        ],
        *captions,
    )
