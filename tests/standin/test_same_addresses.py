"""Processes that make the same requests and name the same base get the same addresses."""

from __future__ import annotations

from typing import Any

from tests.standin.running import run_program

BASE, WINDOW = 32 << 40, 4 << 40


def run(
    base: str, steps: int, beside: int, pause: float, *, own_process: bool = False
) -> dict[str, Any]:
    outcome = run_program(
        "same_addresses", base, str(steps), str(beside), str(pause), own_process=own_process
    )
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_two_trainings_lie_at_the_same_addresses() -> None:
    first, second = run("32TiB", 60, 0, 0), run("32TiB", 60, 300, 0.003)
    assert len(first["seen"]) > 60 * 30
    assert first["seen"] == second["seen"]
    assert all(BASE <= address < BASE + WINDOW for address in first["seen"])
    assert first["reservations"] == 1
    # Where the kernel maps is chosen at the start of a Python; forks have it from their server.
    elsewhere = [run("", 1, beside, 0, own_process=True) for beside in (0, 300)]
    assert elsewhere[0]["seen"] != elsewhere[1]["seen"]
