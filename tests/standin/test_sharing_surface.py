"""What PyTorch programs tell gmlake of streams: those of other libraries, and who uses a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.gmlake_run import run as run_served
from tests.standin.running import run_program

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
SETTINGS = ("--capacity", "320MiB", "--devices", "2")


def run(name: str, **variables: str) -> dict[str, Any]:
    """Run one function of the program `sharing_surface`, which must break no rule of CUDA."""
    outcome = run_program("sharing_surface", name, settings=SETTINGS, variables=variables)
    assert outcome.code == 0, outcome.errors
    assert outcome.results.pop("misuses") == 0, outcome.errors
    return outcome.results


def test_streams_of_others_may_be_destroyed_at_any_time() -> None:
    assert run("wrapped")["seen"] == [0] * 4


def test_pytorchs_own_stream_is_trusted_when_it_is_wrapped() -> None:
    assert run("own") == {"device_waits": 0, "borrowed": True, "pairs": [True], "nowhere": []}


def test_a_tensor_of_many_streams_waits_for_the_last() -> None:
    seen = run("recorded")
    assert (seen["allocated"], seen["active"], seen["counts"]) == (0, 8 * MIB, [0, 1])
    assert seen["borrowers"]
    assert seen["bytes"] == [8 * MIB]
    assert seen["deferred"] == [8 * MIB] * 5 + [0]


def test_a_program_may_end_while_tensors_wait() -> None:
    assert run("at_exit") == {"deferred": 8 * MIB}


@pytest.mark.parametrize("name", [pytest.param("own", marks=pytest.mark.long), "recorded"])
def test_checking_the_order_changes_nothing(name: str) -> None:
    assert run(name, GMLAKE_TEST_CHECK_ORDER="1") == run(name, GMLAKE_TEST_CHECK_ORDER="0")


def test_the_report_tells_what_streams_lent_each_other(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "with torch.cuda.stream(torch.cuda.Stream()):\n"
        f"    torch.empty({8 * MIB}, dtype=torch.uint8, device='cuda').zero_()\n"
        f"torch.empty({8 * MIB}, dtype=torch.uint8, device='cuda')\n"
    )
    ended = run_served("-m", "gmlake", "run", "--report", str(script), settings=SETTINGS)
    assert ended.code == 0, ended.errors
    (report,) = ended.reports
    assert report["lent"] == "8.00 MiB lent between streams (waits: 1)"
