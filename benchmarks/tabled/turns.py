"""Tables of gpu.turns: steps that take turns under two allocators in one process."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tabled.compared import NAMES
from tabled.markdown import caption, marked, number, table, torch_of
from tabled.varying import PROGRAMS

_SIDES = {**NAMES, "again": "the default again"}
_ORDER = ("gmlake", "expandable", "again")
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
    """Return a row for each comparison, which is a process: the ratios of its pairs of steps."""
    found = [told for told in result["comparisons"] if "failed" not in told]
    found.sort(key=lambda told: (_ORDER.index(told["side"]), told["base"] != "expandable"))
    many = Counter((told["program"], told["side"], told["base"]) for told in found)
    if different := [told["program"] for told in found if not told["has_same_losses"]]:
        raise ValueError(f"losses differ: {different}")
    rows, captions = [], []
    for told in found:
        side, base = told["side"], told["base"]
        processes = many[told["program"], side, base]
        rows.append(
            [
                *(_PROGRAMS[told["program"]], _SIDES[base], f"{told['pairs']}"),
                _ratio(told["ratios"].get("wall"), processes),
                "/".join(number(told["median_ms"][name]["wall"], 1) for name in (side, base)),
                number(told["driver_per_step"][side]["ms"], 2) if side == "gmlake" else "",
            ]
        )
        run = told.get("run") or result["run"]
        captions.append(caption(run, [processes], versions=torch_of(told["torch"])))
    return table(
        "program | gmlake against | pairs : | time of a step | ms : | driver, ms :",
        rows,
        *captions,
    )
