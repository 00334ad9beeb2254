"""What PyTorch's own tests ask of the memory that its profiler sees, in our words."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.asking import block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Session:
    """A profile of memory, and what its trace says."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "trace.json"
        self.profile: Any = torch.profiler.profile(
            profile_memory=True, record_shapes=True, with_stack=True, acc_events=True
        )

    @contextmanager
    def run(self) -> Iterator[None]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.profile:
                yield

    def memory(self, device: int = 0) -> list[dict[str, int]]:
        """Return the records of a device's memory, in the order of their times."""
        if not self.path.exists():  # a profile is exported once
            self.profile.export_chrome_trace(str(self.path))
        records = json.loads(self.path.read_text(encoding="utf-8"))["traceEvents"]
        found = [one for one in records if one["name"] == "[memory]"]
        found.sort(key=lambda one: (one["ts"], one["args"]["Ev Idx"]))
        return [
            one["args"]
            for one in found
            if (one["args"]["Device Type"], one["args"]["Device Id"]) == (1, device)
        ]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    torch.zeros(1, device="cuda")
    torch.zeros(1, device="cuda:1")
    return Session(tmp_path)


def test_records_tell_what_is_allocated_after_them(session: Session) -> None:
    before = torch.cuda.memory_allocated()
    with session.run():
        held = [block(3), block(30)]
        held.pop(0)
        held.clear()
    records = session.memory()
    running = before
    for record in records:
        running += record["Bytes"]
        assert record["Total Allocated"] == running
    assert running == before
