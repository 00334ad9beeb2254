"""Categories of what PyTorch records, against what the program knows of its own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.standin.known import known_categories
from tests.standin.running import run_program

import gmlake
from gmlake.snapshots.inferred import infer
from gmlake.snapshots.sites import OwnLines

if TYPE_CHECKING:
    from pathlib import Path

LEAST_RIGHT = 0.95


@pytest.mark.parametrize(
    "name", ["GPT, AdamW", "SGD with momentum, gradients set to zero", "closure", "LoRA"]
)
def test_they_are_right_with_call_paths_and_without(name: str, tmp_path: Path) -> None:
    path = tmp_path / "memory.pickle"
    outcome = run_program("inferred", name, str(path), settings=("--capacity", "80GiB"))
    assert outcome.code == 0, outcome.errors
    loaded = gmlake.Snapshot.load(path)
    seen = loaded[0]
    truth = known_categories(seen, outcome.results["notes"])
    sizes, ids = seen.lives.size_bytes, seen.peak.ids
    held = sizes * (seen.lives.died - np.maximum(seen.lives.born, 0))
    for sites in (loaded.sites, {}):
        found = infer(seen, OwnLines(sites))
        assert found is not None
        is_right = found.categories == truth
        assert held[is_right].sum() >= LEAST_RIGHT * held.sum()
        assert sizes[ids[is_right[ids]]].sum() >= LEAST_RIGHT * sizes[ids].sum()
        assert held[is_right & found.is_sure].sum() >= 0.99 * held[found.is_sure].sum()
        assert found.is_sure.any() == bool(sites)
