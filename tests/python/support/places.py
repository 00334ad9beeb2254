"""Where things are that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted((ROOT / "examples" / "traces").glob("*.gmtrace"))
SHARED = sorted((ROOT.parent / "shared" / "traces").glob("*.pickle"))
"""Snapshots recorded by PyTorch; they are not part of the repository."""
