"""Tables of others/measure.py: other people's programs under each allocator."""

from __future__ import annotations

from typing import Any

from tabled.markdown import GIB, caption, number, table

_PROGRAMS = {
    "deepspeed_zero3": ("DeepSpeed", "ZeRO-3, a Llama of 0.4 billion parameters, varying lengths"),
    "diffusers_offloaded": (
        "diffusers",
        "SDXL, its parts moved to the device and back, pictures of many sizes",
    ),
    "megatron_gpt": ("Megatron-core", "GPT, every layer computed twice, varying lengths"),
    "torchtitan": ("torchtitan", "Llama 3 8B, rank 0 of 8 under FSDP2, selective checkpoints"),
    "trl_sft": ("TRL", "`SFTTrainer`, texts of any length, padded to the longest of a batch"),
}
_ORDER = ("expandable", "default", "gmlake")
_SERVERS = {"vllm_sleeps": "vLLM", "sglang_releases": "SGLang"}
_WAYS = {
    "default": "PyTorch's default",
    "expandable": "expandable segments",
    "gmlake": "`gmlake run`",
}


def _held(told: dict[str, Any]) -> str:
    """Return what was reserved, in GiB, and how much of it was live at most."""
    share = told["live_bytes"] / told["reserved_bytes"]
    return f"{number(told['reserved_bytes'], 2, GIB)}, {share:.3f}"


def others(result: dict[str, Any]) -> str:
    """Return a row for each program but servers: reserved memory, and how much was live at most."""
    rows = []
    for program, (name, what) in _PROGRAMS.items():
        ways = result["programs"][program]
        cells = [
            f"failed: {told['failed']}" if "failed" in told else _held(told)
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
        "program | what it does | live, GiB : "
        "| reserved, GiB, and live / reserved: expandable segments : "
        "| PyTorch's default : | gmlake :",
        rows,
        caption(result["run"], "a run comes to the same each time"),
    )


def servers(result: dict[str, Any]) -> str:
    """Return a row for each server and allocator: what is used of the device at each moment."""
    served = {program: result["programs"][program] for program in _SERVERS}
    moments = dict.fromkeys(
        moment for ways in served.values() for told in ways.values() for moment in told["moments"]
    )
    rows = []
    for program, ways in served.items():
        for way, title in _WAYS.items():
            seen = ways[way]["moments"]
            live = seen[next(iter(moments))]["live_bytes"]
            sizes = (live, *(seen.get(moment, {}).get("used_bytes") for moment in moments))
            cells = (number(size, 2, GIB) for size in sizes)
            rows.append([f"{_SERVERS[program]} {result['versions'][program]}", title, *cells])
    booted, *later = moments
    headings = f"server | allocator | live, GiB : | used of the device, GiB: {booted} : | "
    return table(
        headings + " | ".join(f"{moment} :" for moment in later),
        rows,
        caption(result["run"], "a run comes to the same each time"),
    )
