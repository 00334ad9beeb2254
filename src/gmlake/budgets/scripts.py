"""`gmlake forecast --max` and `--baseline`: a budget for a script, in the same file as of tests."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gmlake.budgets.baselines import read_baseline, write_baseline
from gmlake.budgets.found import Found, convolves, lines_of, too_much
from gmlake.commands import common
from gmlake.printable import printable
from gmlake.snapshots.queries import query
from gmlake.units import format_size, parse_size

if TYPE_CHECKING:
    from gmlake.standin.forecasts import Forecast

_UNKNOWN: Final = 3  # exit codes
_TOO_MUCH: Final = 4


class Budget:
    """What the options of a command allow a script. Raises ValueError."""

    def __init__(self, args: argparse.Namespace, *, is_server: bool) -> None:
        self._limit, self._file, self._is_written = args.max, args.baseline, args.update
        if self._is_written and self._file is None:
            raise ValueError("--update needs --baseline FILE")
        self._is_asked = self._limit is not None or self._file is not None
        if is_server and self._is_asked:
            raise ValueError("--max and --baseline are for a training, not for a server")
        self._known = read_baseline(self._file)

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        """Add --max, --baseline and --update."""
        code = f"exit code {_TOO_MUCH} if the script's tensors ask for more"
        size = common.argument(parse_size)
        parser.add_argument("--max", type=size, metavar="SIZE", help=f"{code} than this")
        parser.add_argument("--baseline", metavar="FILE", help=f"{code} than this file says")
        parser.add_argument("--update", action="store_true", help="write what they need to FILE")

    def judge(self, program: Sequence[str], found: Forecast) -> int:
        """Say what is too much, or not known; return an exit code, else 0. Raises OSError."""
        if not self._is_asked:
            return 0
        need, name = _need_of(found), shlex.join(program)
        name += f" (rank {need.rank} of {need.ranks})" * (need.ranks > 1)
        if self._is_written:
            self._known[name] = need
            write_baseline(Path(self._file), self._known)
        limit = (1 << 64) if self._limit is None else self._limit
        is_over = found.least_live_bytes > limit
        if said := too_much(need, self._known.get(name), limit if is_over else None):
            code = _TOO_MUCH
        elif found.most_live_bytes > limit:
            least, most = map(format_size, (found.least_live_bytes, found.most_live_bytes))
            code, said = _UNKNOWN, f"needs {least} to {most}; its limit is {format_size(limit)}"
        elif self._file is not None and name not in self._known:
            code, said = _UNKNOWN, f"is not in {self._file}: --update adds it"
        else:
            return 0
        sys.stderr.write(f"gmlake: {printable(name)} {said}\n")
        return code


def _need_of(found: Forecast) -> Found:
    answers = query(found.snapshot, "peak", "owner").answers
    held = max(answers, key=lambda one: one.state.live_bytes)
    return Found(
        held.state.live_bytes,
        found.needs[0].reserved_bytes,
        found.device.settings()["name"],
        lines_of(held, Path.cwd()),
        found.rank,
        found.world,
        convolves(found.snapshot),
    )
