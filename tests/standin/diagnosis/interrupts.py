"""Interrupts a block of gmlake.diagnose() at every line; prints what was left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standin.programs.interrupts import BASE, held, left, main, train

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable


def diagnose() -> tuple[Callable[[], None], Callable[[], object]]:
    """Return a use of gmlake.diagnose()."""

    def use() -> None:
        with gmlake.diagnose(frames=0, model=BASE) as held["it"]:
            train()

    def gives() -> object:
        train()
        use()
        told = held["it"].to_dict()["devices"]["cuda:0"]
        return {name: part for name, part in told.items() if name != "seconds"}, left()

    return use, gives


if __name__ == "__main__":
    main(diagnose)
