"""The file of what tests need: read, written, and how a run differs from it; the summary."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gmlake.budgets.found import Found, found_of
from gmlake.printable import printable
from gmlake.units import format_size

_SCHEMA: Final = "gmlake-budgets-1"
_MOST_SHOWN: Final = 10


def read_baseline(path: str | Path | None) -> dict[str, Found]:
    """Return what each test needed, by name. Raises ValueError for a file of anything else."""
    if path is None or not Path(path).exists():
        return {}
    try:
        known: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        return {name: found_of(one) for name, one in known[_SCHEMA].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is no baseline of GPU memory: {error!r}") from None


def conclude(options: Namespace, path: Path | None, tests: Mapping[str, Any]) -> list[str]:
    """Write the files that the options name; return the lines of the summary, [] for none.

    path: the baseline's. tests: what was found, as dictionaries.
    """
    found = {name: found_of(tests[name]) for name in sorted(tests)}
    known = read_baseline(path)
    shown = list(_largest(found)) if options.gpu_memory or options.gpu_memory_all else []
    if options.gpu_memory_table:
        text = "\n".join(_table(known, found))
        Path(options.gpu_memory_table).write_text(f"{text}\n", encoding="utf-8")
    if path is not None and options.gpu_memory_update:
        both = {name: asdict(one) for name, one in sorted({**known, **found}.items())}
        text = json.dumps({_SCHEMA: both}, indent=1)
        path.write_text(f"{text}\n", encoding="utf-8")
        shown.append(f"{path}: written, with {len(found)} tests of this run")
    elif path is not None and (new := found.keys() - known.keys()):
        shown.append(f"{path} has nothing of {len(new)} tests: --gpu-memory-update adds them")
    return shown


def _largest(found: Mapping[str, Found]) -> Iterator[str]:
    """Yield the tests that needed most, as lines of a table."""
    yield f"{'peak':>10} {'reserved':>10}  test, and the line that holds most"
    for name in sorted(found, key=lambda one: -found[one].peak_bytes)[:_MOST_SHOWN]:
        one = found[name]
        yield f"{format_size(one.peak_bytes):>10} {format_size(one.reserved_bytes):>10}  {name}"
        for line in [line for line in one.lines if line.file][:1] or one.lines[:1]:
            yield f"{'':23}{printable(f'{format_size(line.size_bytes)} at {line}')}"
    devices = dict.fromkeys(one.device for one in found.values() if one.device)
    yield f"{len(found)} tests were measured on {', '.join(devices) or 'no device'}"


def _table(before: Mapping[str, Found], after: Mapping[str, Found]) -> Iterator[str]:
    """Yield lines of Markdown: the tests that need more or less than before, or are new."""
    known = {name: one.peak_bytes for name, one in before.items()}
    changed = {
        name: one.peak_bytes - known.get(name, 0)
        for name, one in after.items()
        if one.peak_bytes != known.get(name)
    }
    yield f"GPU memory of {len(after)} tests: {len(changed)} changed"
    if changed:
        yield "\n| test | before | now | change | most is held by |\n|---|---:|---:|---:|---|"
    for name, change in sorted(changed.items(), key=lambda one: (-one[1], one[0])):
        sizes = known.get(name, 0), after[name].peak_bytes, change
        line = str(after[name].lines[0]) if after[name].lines else ""
        cells = [name, *map(format_size, sizes), line]
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
