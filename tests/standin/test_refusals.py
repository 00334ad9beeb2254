"""Forty refusals on devices of eight sizes: exception, file, page and commands give one answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.running import run_program

import gmlake
from gmlake import fit
from gmlake.commands import common, main
from gmlake.pictures.figures import Moments
from gmlake.refusals import refusals_of

if TYPE_CHECKING:
    from gmlake.refusals import Refusal

RunOut = Callable[[int], tuple[Path, dict[str, Any]]]

REASONS = (
    *("growing", "graph_pool", "mempool", "streams", "limit"),
    *("neighbour", "asleep", "elastic"),
)
CAPACITIES = ("2GiB", "14GiB", "1GiB", "3GiB", "6GiB", "8GiB", "24GiB", "80GiB")
OF_EACH = 5
CASES = {
    "graph_pool": "elsewhere",
    "streams": "elsewhere",
    "limit": "limit",
    "neighbour": "outside",
}


def reasons_at(place: int) -> tuple[str, ...]:
    """Return those on a device of the size of that place: each comes as often as any other."""
    return tuple(REASONS[(place * OF_EACH + number) % len(REASONS)] for number in range(OF_EACH))


ROWS = [
    pytest.param(
        place, reason, marks=[pytest.mark.long] if place > 1 else [], id=f"{size}-{reason}"
    )
    for place, size in enumerate(CAPACITIES)
    for reason in reasons_at(place)
]


@pytest.fixture(scope="module")
def run_out(tmp_path_factory: pytest.TempPathFactory) -> RunOut:
    @cache
    def run(place: int) -> tuple[Path, dict[str, Any]]:
        """Return a folder of files, and what the program printed."""
        folder = tmp_path_factory.mktemp("refusals")
        settings = ("--devices", "1", "--capacity", CAPACITIES[place])
        outcome = run_program("refusals", str(folder), *reasons_at(place), settings=settings)
        assert outcome.code == 0, outcome.errors
        return folder, outcome.results

    return run


def refusal_in(path: Path) -> Refusal:
    return refusals_of(gmlake.load(path)[0])[-1]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) in (0, common.DOES_NOT_FIT)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(("place", "reason"), ROWS)
def test_all_tell_the_same(
    run_out: RunOut, place: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, results = run_out(place)
    path, result = folder / f"{reason}.pickle", results[reason]
    account, said = result["account"], result["said"]
    why = refusal_in(path).situation
    assert why is not None
    assert why.policy == account.pop("policy") == "stitch"
    assert why.numbers == account
    assert f" {why.verdict} {why.figures} " in said
    assert said.startswith("CUDA out of memory. Tried to allocate ")
    assert why.held_bytes + why["free_bytes"] <= why["total_bytes"]
    assert CASES.get(reason, why.case) == why.case
    told = why.to_dict()
    (held,) = printed(capsys, "query", str(path))["answers"]
    assert held["refusal"] == told
    assert held["held_bytes"] == why.held_bytes
    assert held["moment"]["says"][0].endswith(f": {why.verdict}")
    assert held["moment"]["says"][1].startswith(why.figures)
    moments = gmlake.load(path).report().figures[0]
    assert isinstance(moments, Moments)
    assert list(moments.moments[moments.shown].says[:2]) == held["moment"]["says"][:2]
    needs = fit(path, policies="stitch", memory=why.capacity_bytes)
    assert needs.refusals[0].situation == why
    assert not needs.fits
    assert needs.needs[0].smallest_bytes > why.capacity_bytes


@pytest.mark.parametrize(("place", "reason"), ROWS)
def test_the_same_policy_refuses_it_again(
    run_out: RunOut, place: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = run_out(place)
    path = folder / f"{reason}.pickle"
    refusal = refusal_in(path)
    capacity = ("--capacity", str(refusal.capacity_bytes))
    for more in ((), capacity):
        report = printed(capsys, "replay", str(path), "--policy", "stitch", *more)
        (again,) = next(iter(report["refusals"].values()))
        assert again["situation"] == refusal.situation.to_dict() if refusal.situation else None
        assert [answer["is_served"] for answer in again["answers"]] == [False]
    assert report["results"][0]["first_refused"] == refusal.event


@pytest.mark.parametrize(("place", "reason"), ROWS)
def test_what_is_said_to_be_served_is(run_out: RunOut, place: int, reason: str) -> None:
    result = run_out(place)[1][reason]
    assert (result["less"], result["more"]) == (True, False)
