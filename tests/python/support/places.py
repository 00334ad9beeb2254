"""Where things are that tests read."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted((ROOT / "examples" / "traces").glob("*.gmtrace"))
VARYING = sorted((ROOT / "benchmarks" / "recordings" / "varying").glob("*.gmtrace"))
RECORDINGS = Path(os.environ.get("GMLAKE_TEST_RECORDINGS", os.devnull))
"""A folder that whoever tests may name: in `traces` snapshots recorded by PyTorch, in
`planner-instances` published instances. They are not part of the repository."""
RECORDED = sorted((RECORDINGS / "traces").glob("*.pickle"))
