"""Tables of gpu.against: programs whose steps never repeat, a process for each allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tabled.compared import ALLOCATORS, Compared, compared, short
from tabled.markdown import caption, torch_of

if TYPE_CHECKING:
    from collections.abc import Iterator


PROGRAMS = {
    "llama-1b": "Llama 1.1B, all parameters trained",
    "llama-1b-checkpoint": "Llama 1.1B, checkpointed",
    "llama-3b": "Llama 3B, all parameters trained",
    "llama-3b-checkpoint": "Llama 3B, checkpointed",
    "lora": "LoRA 1.1B",
    "moe": "mixture of experts, random routing",
    "convnet": "convolutions, mixed resolutions",
    "generate": "text generation",
    "fsdp2": "Llama 2.2B, FSDP2",
}


class _Program(NamedTuple):
    """A program in one part of the result. rows: what it came to, by allocator."""

    name: str
    part: dict[str, Any]
    rows: dict[str, dict[str, Any]]

    def source(self) -> str:
        """Return the caption of the part."""
        many = [row["finished"] for row in self.part["summary"]]
        return caption(self.part["run"], many, versions=torch_of(self.part["versions"]))


def _programs(result: dict[str, Any]) -> Iterator[_Program]:
    """Yield the programs that ran under gmlake and PyTorch's two allocators."""
    found = []
    for part in result.get("parts", [result]):
        for name in part["steps"]:
            rows = {
                row["allocator"]: row
                for row in part["summary"]
                if row["program"] == name and row["finished"]
            }
            if rows.keys() >= set(ALLOCATORS):
                found.append(_Program(name, part, rows))
    order = list(PROGRAMS)
    yield from sorted(found, key=lambda each: order.index(each.name))


def programs(result: dict[str, Any]) -> str:
    """Return a row for each program and GPU: the peak reserved and the time, by allocator."""
    shown = list(_programs(result))
    rows = [
        Compared(
            PROGRAMS[program.name],
            short(program.part["run"]["gpu"]),
            {each: program.rows[each]["finished"] for each in ALLOCATORS},
            program.rows["gmlake"]["peak_allocated_bytes"]["median"],
            {each: program.rows[each]["peak_reserved_bytes"]["median"] for each in ALLOCATORS},
            {each: program.rows[each]["late_seconds"]["median"] for each in ALLOCATORS},
        )
        for program in shown
    ]
    return compared(rows, [program.source() for program in shown])
