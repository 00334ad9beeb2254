"""Tables of others/measure.py: other people's trainings under each allocator."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, caption, number, table

_PROGRAMS = {
    "deepspeed_zero3": ("DeepSpeed", "ZeRO-3, a Llama of 0.4 billion parameters, varying lengths"),
    "megatron_gpt": ("Megatron-core", "GPT, every layer computed twice, varying lengths"),
    "torchtitan": ("torchtitan", "Llama 3 8B, rank 0 of 8 under FSDP2, selective checkpoints"),
    "trl_sft": ("TRL", "`SFTTrainer`, texts of any length, padded to the longest of a batch"),
}
_ORDER = ("expandable", "default", "gmlake")


def others(result: dict[str, Any]) -> str:
    """Return a row for each program: reserved memory, and how much of it was live at most."""
    rows = []
    for program, ways in result["programs"].items():
        name, what = _PROGRAMS[program]
        cells = [
            f"failed: {told['failed']}"
            if "failed" in told
            else f"{number(told['reserved_bytes'], 2, GIB)}, "
            f"{told['live_bytes'] / told['reserved_bytes']:.3f}"
            for told in (ways[way] for way in _ORDER)
        ]
        live = [told["live_bytes"] for told in ways.values() if "failed" not in told]
        rows.append(
            [
                f"{name} {result['versions'][program]}",
                what,
                number(max(live, default=None), 2, GIB),
                *cells,
            ]
        )
    return table(
        "program | training | live, GiB : "
        "| reserved, GiB, and live / reserved: expandable segments : "
        "| PyTorch's default : | gmlake :",
        rows,
        caption(result["run"], "a run comes to the same each time"),
    )
