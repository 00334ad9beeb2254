"""Make a committed result again by the command that it records.

    python benchmarks/result.py NAME

The command is printed, then run by this Python in the root of the repository, and writes
benchmarks/results/NAME.json. Files that it names have to be where it names them. Where several runs
make a result, their commands are printed alone.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent


def commands(value: object) -> Iterator[str]:
    """Yield the command of each run that a result tells of."""
    if isinstance(value, dict):
        if "command" in value:
            yield value["command"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from commands(each)


def main() -> int:
    """Run the command; return its exit status."""
    name = " ".join(sys.argv[1:])
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    if not path.is_file():
        sys.exit(f"no result is called '{name}': they are the files of benchmarks/results")
    command, *others = dict.fromkeys(commands(json.loads(path.read_text(encoding="utf-8"))))
    print(command, *others, sep="\n", flush=True)
    if others:
        sys.exit(f"{name} is made by several runs: repeat the one that you need")
    words = shlex.split(command)[1:]
    if "--output" in words:
        words[words.index("--output") + 1] = str(path)
    paths = (str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", ""))
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    asked = [sys.executable, *words]
    return subprocess.run(asked, cwd=ROOT, env=variables, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
