"""The file of what tests need: read, written, and how a run differs from it; the summary."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gmlake.budgets.found import NOWHERE, OPEN, Found, largest
from gmlake.printable import printable
from gmlake.units import format_size

_SCHEMA: Final = "gmlake-budgets-1"
_MOST: Final = 20  # tests of the summary


def read_baseline(path: str | Path | None) -> dict[str, Found]:
    """Return what each test needed, by name. Raises ValueError for a file of anything else."""
    if path is None or not Path(path).exists():
        return {}
    try:
        known: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        return {name: Found(**one) for name, one in known[_SCHEMA].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is no baseline of GPU memory: {error!r}") from None


def write_baseline(path: Path, found: Mapping[str, Found]) -> None:
    """Write what each test or script needs, by name. Raises OSError."""
    text = json.dumps({_SCHEMA: {name: asdict(found[name]) for name in sorted(found)}}, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


def conclude(options: Namespace, path: Path | None, tests: Mapping[str, Any]) -> list[str]:
    """Write the files that the options name; return the lines of the summary, [] for none.

    path: the baseline's. tests: what was found, as dictionaries.
    """
    found = {name: Found(**tests[name]) for name in sorted(tests)}
    known, shown = read_baseline(path), list[str]()
    if options.gpu_memory or options.gpu_memory_all:
        shown += _summary(known, found)
    if options.gpu_memory_table:
        fenced = "\n".join(["```text", *_summary(known, found), "```"])
        Path(options.gpu_memory_table).write_text(f"{fenced}\n", encoding="utf-8")
    if path is not None and options.gpu_memory_update:
        write_baseline(path, {**known, **found})
        shown.append(f"{path}: written, with {len(found)} tests of this run")
    elif path is not None and (new := found.keys() - known.keys()):
        shown.append(f"{path} has nothing of {len(new)} tests: --gpu-memory-update adds them")
    return shown


def _summary(known: Mapping[str, Found], found: Mapping[str, Found]) -> Iterator[str]:
    """Yield lines of a table: the tests that changed most, then those that need most."""
    changes = {
        name: one.peak_bytes - known.get(name, one).peak_bytes for name, one in found.items()
    }
    yield f"{'peak':>10} {'change':>10} {'reserved':>10}  test, and the line that holds most"
    for name in sorted(found, key=lambda one: (-abs(changes[one]), -found[one].peak_bytes))[:_MOST]:
        one, change = found[name], changes[name]
        said = "new" if known and name not in known else ""
        said = f"{'+' if change > 0 else '-'}{format_size(abs(change))}" if change else said
        sizes = (
            f"{format_size(one.peak_bytes):>10} {said:>10} {format_size(one.reserved_bytes):>10}"
        )
        yield f"{sizes}  {name}{one.has_convolved * OPEN}"
        for line in sorted(largest(one.lines), key=lambda line: NOWHERE in line)[:1]:
            yield f"{'':34}{printable(line)}"
    devices = ", ".join(dict.fromkeys(one.device for one in found.values() if one.device))
    count = len([name for name in found if changes[name] or (known and name not in known)])
    yield f"{len(found)} tests were measured on {devices or 'no device'}: {count} changed"
