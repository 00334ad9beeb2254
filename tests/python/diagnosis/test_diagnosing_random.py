"""Random traces: whatever is found can be fixed, saves what it says, and changes nothing read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gmlake import find_inefficiencies
from gmlake.diagnosis import Diagnosis, Part, Pattern, TraceBuilder
from gmlake.diagnosis.report import others
from proving import prove

UNIT = 16
SEEDS = 150


class RandomTrace:
    """A trace of some objects, streams, copies, sets and kernels, all drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 (no secret)
        self.builder = TraceBuilder(str(seed))
        self.sizes: dict[int, int] = {}
        self.streams = self.draw.choice((1, 1, 2, 3))
        for _ in range(self.draw.randint(0, 2)):
            self._begin(self.builder.exists)
        for _ in range(self.draw.randint(3, 40)):
            self._step()
        for number in list(self.sizes):
            if self.draw.random() < 0.7:
                self._free(number)
            elif self.draw.random() < 0.3:
                self.builder.keep(number)

    def _begin(self, begin: Any, **options: Any) -> None:
        size = 4 * UNIT * self.draw.choice((1, 2, 4, 4, 4, 8))
        element = self.draw.choice((1, 4, UNIT))
        self.sizes[begin(size, element_bytes=element, **options)] = size

    def _free(self, number: int) -> None:
        del self.sizes[number]
        self.builder.free(number, stream=self.draw.randrange(self.streams))

    def _step(self) -> None:
        chance = self.draw.random()
        if chance < 0.3 or not self.sizes:
            self._begin(self.builder.alloc, stream=self.draw.randrange(self.streams))
        elif chance < 0.45:
            self._free(self.draw.choice(list(self.sizes)))
        else:
            self._access()

    def _access(self) -> None:
        given: dict[str, Any] = {"stream": self.draw.randrange(self.streams)}
        for name, chance in (("reads", 0.6), ("writes", 0.6), ("touches", 0.1)):
            if self.draw.random() < chance:
                given[name] = [self._item() for _ in range(self.draw.randint(1, 2))]
        call = self.draw.choice((self.builder.copy, self.builder.set, self.builder.kernel))
        call("call", **given)

    def _item(self) -> int | Part:
        number = self.draw.choice(list(self.sizes))
        if self.draw.random() < 0.5:
            return number
        return Part(number, [self._range(number) for _ in range(self.draw.randint(1, 3))])

    def _range(self, number: int) -> tuple[int, int, int, int, int]:
        size = UNIT * self.draw.randint(1, 2)
        offset = UNIT * self.draw.randint(0, (self.sizes[number] - size) // UNIT)
        stride = size * self.draw.choice((1, 2))
        most = (self.sizes[number] - offset - size) // stride + 1
        return (
            offset,
            size,
            stride,
            min(self.draw.choice((1, 1, 3)), most),
            self.draw.choice((1, 9)),
        )


@pytest.fixture(params=range(0, SEEDS, 10))
def batch(request: pytest.FixtureRequest) -> list[Diagnosis]:
    first: int = request.param
    return [
        find_inefficiencies(RandomTrace(seed).builder.build()) for seed in range(first, first + 10)
    ]


def test_every_finding_is_a_fix_that_saves_what_it_says(batch: list[Diagnosis]) -> None:
    for found in batch:
        for finding in found.findings:
            prove(found, [finding])
            saved = found.peak_bytes - found.peak_with([finding])
            assert finding.saving_bytes == max(saved, 0)
            assert finding.change


def test_any_findings_can_be_fixed_together(batch: list[Diagnosis]) -> None:
    for number, found in enumerate(batch):
        prove(found)
        chosen = [finding for finding in found.findings if finding.number % 2 == number % 2]
        random.Random(number).shuffle(chosen)  # noqa: S311
        prove(found, chosen)


def test_advice_lowers_the_peak_as_far_as_everything(batch: list[Diagnosis]) -> None:
    left_out = (Pattern.REDUNDANT_ALLOCATION, Pattern.TEMPORARY_IDLENESS)
    for found in batch:
        chosen = [finding for finding in found.findings if finding.kind not in left_out]
        lowest = found.advice[-1].peak_bytes if found.advice else found.peak_bytes
        assert found.fixed_peak_bytes <= lowest <= found.peak_with(chosen)
        advised = {(advice.cause, one) for advice in found.advice for one in advice.objects}
        prove(found, [one for one in found.findings if (one.pattern, one.object) in advised])
        rest = [found.findings[number] for group in others(found) for number in group.numbers]
        told = advised | {(one.pattern, one.object) for one in rest}
        assert told == {(one.pattern, one.object) for one in found.findings}
