"""Two processes, a device each, that train one model over gloo."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.standin.running import Outcome, finish_program, start_program

if TYPE_CHECKING:
    from pathlib import Path

WORLD = 2


@pytest.fixture(scope="module", params=["0", "1"], ids=["unbacked", "backed"])
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[Outcome]:
    """Run both processes, on devices without bytes and with them."""
    store: Path = tmp_path_factory.mktemp("gloo") / "store"
    variables = {"GMLAKE_STANDIN_BACKED": request.param, "GMLAKE_STANDIN_CAPACITY": "1GiB"}
    processes = [
        start_program("parallel", str(rank), str(WORLD), str(store), variables=variables)
        for rank in range(WORLD)
    ]
    with ThreadPoolExecutor(WORLD) as pool:  # that of one may have to wait for the other's
        return list(pool.map(finish_program, processes))


@pytest.mark.parametrize("rank", range(WORLD))
def test_processes_end_well(outcomes: list[Outcome], rank: int) -> None:
    assert outcomes[rank].code == 0, outcomes[rank].errors
    assert outcomes[rank].results["rank"] == rank


@pytest.mark.parametrize("rank", range(WORLD))
def test_data_parallel_steps_keep_nothing(outcomes: list[Outcome], rank: int) -> None:
    results = outcomes[rank].results["ddp"]
    assert results["allocated"][0] == results["allocated"][1]
    assert results["steady_calls"] == {}
    # Weights, gradients in buckets, and two states of the optimizer.
    assert 1 <= results["kept"] / (4 * results["weights"]) < 1.1
    assert results["copies"] > 0
    assert results["reserved_at_end"] == [0, 0]


@pytest.mark.parametrize("rank", range(WORLD))
def test_sharded_training_keeps_a_share_of_the_weights(outcomes: list[Outcome], rank: int) -> None:
    whole = outcomes[rank].results["ddp"]["weights"]
    results = outcomes[rank].results["fsdp"]
    assert results["is_sharded"]
    assert results["weights"] < whole
    assert abs(results["weights"] - whole / WORLD) < 0.05 * whole
    assert results["allocated"][0] == results["allocated"][1]
    # A share of the weights and of two states; the rest is there layer by layer, for a while.
    assert 1 <= results["kept"] / (3 * results["weights"]) < 1.1
    assert results["peak"] > results["allocated"][1]
    assert results["streams"] > 1
    assert results["reserved_at_end"] == [0, 0]


def test_each_process_uses_its_own_device(outcomes: list[Outcome]) -> None:
    for rank, outcome in enumerate(outcomes):
        assert outcome.results["other_device"] == 0
        assert outcome.results["device"] == rank
